"""The cache: made once, whole or not at all, whatever happens to the one who builds."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from toolchain.cache import build_once, cache_root, published

# Says when it builds, then waits until the test lets it go on.
BUILDER = """
import os, sys
from pathlib import Path
from toolchain.cache import build_once

log, gate = Path(sys.argv[1]), Path(sys.argv[2])

def build(folder):
    (folder / "half").write_text("made")
    with log.open("a") as out:
        out.write("built\\n")
    print("building", flush=True)
    gate.open().close()
    (folder / "whole").write_text("made")

print(build_once("thing", "v1", build), flush=True)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TF_SERVING_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A pipe: who opens it to read waits until the test has opened it to write."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def start(log: Path, gate: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILDER, str(log), str(gate)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str], stream: str = "stdout") -> str:
    pipe = process.stdout if stream == "stdout" else process.stderr
    assert pipe is not None
    return pipe.readline().strip()


def finish(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=30)


def test_two_runs_at_once_build_once_and_the_second_waits(tmp_path: Path, gate: Path, cache: Path) -> None:
    log = tmp_path / "log"
    first = start(log, gate)
    assert line(first) == "building"
    second = start(log, gate)
    assert line(second, "stderr") == "waiting for another run that makes thing v1"
    gate.open("w").close()
    folder = str(cache / "thing" / "v1")
    assert (line(first), line(second)) == (folder, folder)
    finish(first)
    finish(second)
    assert log.read_text() == "built\n"
    assert (cache / "thing" / "v1" / "whole").is_file()


def test_a_killed_build_leaves_nothing_published_and_the_next_one_sweeps_it(
    tmp_path: Path, gate: Path, cache: Path
) -> None:
    first = start(tmp_path / "log", gate)
    assert line(first) == "building"
    first.send_signal(signal.SIGKILL)
    finish(first)
    assert published("thing", "v1") is None
    assert len(list((cache / "thing").glob(".*.partial"))) == 1

    folder = build_once("thing", "v1", lambda target: _write(target / "whole"))

    assert [entry.name for entry in folder.iterdir()] == ["whole"]
    assert list((cache / "thing").glob(".*.partial")) == []


def test_a_failed_build_is_not_published_and_its_error_comes_through(cache: Path) -> None:
    def build(folder: Path) -> None:
        _write(folder / "half")
        raise RuntimeError("no space")

    with pytest.raises(RuntimeError, match="no space"):
        build_once("thing", "v1", build)
    assert published("thing", "v1") is None
    assert list((cache / "thing").glob(".*.partial")) == []


def test_a_published_build_is_not_made_again() -> None:
    folder = build_once("thing", "v1", lambda target: _write(target / "whole"))
    assert build_once("thing", "v1", _never) == folder


def test_another_key_is_another_build() -> None:
    first = build_once("thing", "v1", lambda target: _write(target / "whole"))
    second = build_once("thing", "v2", lambda target: _write(target / "whole"))
    assert first != second


def test_the_cache_follows_the_users_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TF_SERVING_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "tf-serving-pulumi"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "tf-serving-pulumi"


def _write(file: Path) -> None:
    file.write_text("made")


def _never(folder: Path) -> None:
    raise AssertionError(f"built again into {folder}")
