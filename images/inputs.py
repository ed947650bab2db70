"""What an image is made from, as a hash that tells whether it is up to date."""

import hashlib
import platform
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent

ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def machine() -> str:
    """This host's architecture as Docker and Go name it, or the kernel's own word for it."""
    return ARCHITECTURES.get(platform.machine(), platform.machine())


def recipe_files(own: Path) -> list[Path]:
    """The code that decides what is in an image: the image's own module and what all of them share."""
    return [own.resolve(), HERE / "archive.py", HERE / "host_files.py"]


def fingerprint(files: Iterable[Path]) -> str:
    """A short hash over the names and contents of files, in the order of their names."""
    total = hashlib.sha256()
    for file in sorted(files):
        total.update(f"{file.relative_to(REPOSITORY)}\0".encode())
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:24]
