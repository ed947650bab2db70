"""The project speaks of itself alone: it names no machine that it was written on and no registry's host."""

import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]

# In pieces, so that this file does not hold what it looks for.
FOLDERS = ["/".join(("", name, "")) for name in ("work", "root")]
REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("proxy", "golang", "org"),
        ("sum", "golang", "org"),
        ("registry", "npmjs", "org"),
        ("deb", "debian", "org"),
        ("security", "debian", "org"),
        ("archive", "ubuntu", "com"),
        ("security", "ubuntu", "com"),
        ("crates", "io"),
    )
]


@pytest.fixture(scope="module")
def committed() -> dict[str, bytes]:
    # The checkout may belong to somebody else than who runs the tests, such as root.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=PROJECT, capture_output=True, check=True).stdout
    files = [PROJECT / name for name in listed.decode().split("\0") if name]
    return {file.relative_to(PROJECT).as_posix(): file.read_bytes() for file in files if file.is_file()}


def naming(needle: str, committed: dict[str, bytes]) -> list[str]:
    return [
        f"{name}:{number}"
        for name, data in committed.items()
        for number, line in enumerate(data.splitlines(), start=1)
        if needle.encode() in line
    ]


def test_the_needles_would_be_found(committed: dict[str, bytes]) -> None:
    planted = committed | {"planted": b"first\nGet it from https://" + REGISTRIES[0].encode() + b"/simple\n"}
    assert naming(REGISTRIES[0], planted)[-1:] == ["planted:2"]
    assert "tests/contract/test_repository.py" in committed


@pytest.mark.parametrize("needle", REGISTRIES)
def test_no_committed_file_names_a_registrys_host(needle: str, committed: dict[str, bytes]) -> None:
    assert naming(needle, committed) == []


@pytest.mark.parametrize("needle", FOLDERS)
def test_no_committed_file_names_a_folder_of_the_machine_it_was_written_on(
    needle: str, committed: dict[str, bytes]
) -> None:
    assert naming(needle, committed) == []


def test_no_source_file_is_too_long_to_be_read_in_one_go(committed: dict[str, bytes]) -> None:
    lengths = {
        name: data.count(b"\n")
        for name, data in committed.items()
        if name.endswith((".py", ".go")) and not name.endswith(".pb.go") and not name.startswith("tests/")
    }
    assert {name: lines for name, lines in lengths.items() if lines > 400} == {}
