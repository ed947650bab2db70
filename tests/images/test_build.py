"""When images are made, judged with a `docker` of our own on the PATH that writes down what it is asked."""

from pathlib import Path

import pytest

from images import build
from images.archive import Entry, Image
from images.inputs import fingerprint, machine
from toolchain.errors import ToolchainError

# Answers from files in its own folder; `docker load` makes the image present, with its label.
STUB = """#!/bin/bash
here=$(dirname "$0")
echo "$@" >> "$here/asked"
[[ $1 == --host ]] && shift 2
case "$1 $2" in
"image inspect")
    [[ -e $here/down ]] && { echo "Cannot connect to the Docker daemon" >&2; exit 1; }
    cat "$here/present" 2> /dev/null
    echo "Error: No such image: other" >&2
    exit 1 ;;
"version --format") cat "$here/architecture" ;;
"load --quiet")
    [[ -e $here/full ]] && { echo "no space left on device" >&2; exit 1; }
    cp "$here/loaded" "$here/present" ;;
"ps --quiet") cat "$here/users" 2> /dev/null ;;
esac
exit 0
"""
NAME = "example:1"
IMAGE = Image(name=NAME, entries=[Entry(path="file", text="content")], entrypoint=["/file"])


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the stub; images have no tag in it until something is loaded."""
    docker = tmp_path / "docker"
    docker.write_text(STUB)
    docker.chmod(0o755)
    (tmp_path / "architecture").write_text(machine())
    (tmp_path / "loaded").write_text(f'["{NAME}"]|sha256:new|inputs-2\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(build, "RECIPES", (build.Recipe(NAME, lambda: "inputs-2", lambda: IMAGE),))
    return tmp_path


def asked(stub: Path) -> list[str]:
    return [" ".join(line.split()[:2]) for line in (stub / "asked").read_text().splitlines()]


def test_an_absent_image_is_loaded(stub: Path) -> None:
    build.ensure_images(None)
    assert asked(stub) == ["image inspect", "version --format", "load --quiet"]


def test_an_image_that_is_up_to_date_costs_one_question(stub: Path) -> None:
    (stub / "present").write_text(f'["other:1","{NAME}"]|sha256:old|inputs-2\n\n')
    build.ensure_images(None)
    assert asked(stub) == ["image inspect"]


def test_an_image_from_other_inputs_is_replaced_and_removed(
    stub: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stub / "present").write_text(f'["{NAME}"]|sha256:old|inputs-1\n')
    build.ensure_images(None)
    assert asked(stub)[-3:] == ["image inspect", "ps --quiet", "image rm"]
    assert "image rm sha256:old" in (stub / "asked").read_text()


def test_an_image_that_containers_run_stays_and_is_told(
    stub: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stub / "present").write_text(f'["{NAME}"]|sha256:old|inputs-1\n')
    (stub / "users").write_text("aaa\nbbb\n")
    build.ensure_images(None)
    assert "image rm" not in asked(stub)
    assert "2 running containers keep the one before" in capsys.readouterr().err


def test_the_engine_is_the_one_that_was_named(stub: Path) -> None:
    build.ensure_images("ssh://user@host")
    assert {line.split(" image")[0] for line in (stub / "asked").read_text().splitlines()[:1]} == {
        "--host ssh://user@host"
    }


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("down", "", "Cannot connect to the Docker daemon"),
        ("architecture", "riscv64", "runs on riscv64"),
        ("full", "", "no space left on device"),
    ],
)
def test_what_goes_wrong_is_told(stub: Path, file: str, content: str, message: str) -> None:
    (stub / file).write_text(content)
    with pytest.raises(ToolchainError, match=message):
        build.ensure_images(None)


def test_a_machine_without_docker_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="`docker` is not on PATH"):
        build.ensure_images(None)


def test_a_fingerprint_follows_names_and_contents() -> None:
    here = Path(__file__).parent
    both = [here / "test_build.py", here / "test_archive.py"]
    assert fingerprint(both) == fingerprint(reversed(both))
    assert fingerprint(both) != fingerprint(both[:1])
