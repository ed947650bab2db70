"""Builds that are kept outside the checkout, made once, and safe when two runs want the same one."""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from toolchain.progress import note


def cache_root() -> Path:
    """Where builds are kept: $TF_SERVING_CACHE, or `tf-serving-pulumi` in the user's cache folder."""
    if explicit := os.environ.get("TF_SERVING_CACHE"):
        return Path(explicit).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tf-serving-pulumi"


def published(name: str, key: str) -> Path | None:
    """The folder of a finished build, or None when nobody has made it yet."""
    folder = cache_root() / name / key
    return folder if folder.is_dir() else None


def build_once(name: str, key: str, build: Callable[[Path], None]) -> Path:
    """Return the folder of a published build, making it first if needed.

    `build` fills an empty folder on the same file system, which is renamed into place when it returns: a
    build is there whole or not at all. A run that finds another one building waits for it. What a killed run
    left is swept by the next.
    """
    if folder := published(name, key):
        return folder
    folder = cache_root() / name / key
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f".{key}.lock", waiting_for=f"another run that makes {name} {key}"):
        if folder.is_dir():
            return folder
        for leftover in folder.parent.glob(f".{key}.*.partial"):
            shutil.rmtree(leftover, ignore_errors=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{key}.", suffix=".partial", dir=folder.parent))
        try:
            build(partial)
            partial.chmod(0o755)
            os.sync()  # a power cut after the rename must not leave empty files under a published name
            partial.rename(folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return folder


def content_key(label: str, *parts: bytes | str) -> str:
    """A build's key: a label for people, and a hash of all that the build depends on."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\0")
    return f"{label}-{digest.hexdigest()[:12]}"


def folder_content(folder: Path) -> bytes:
    """The names and contents of all files below a folder."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return b"".join(file.relative_to(folder).as_posix().encode() + file.read_bytes() for file in files)


@contextmanager
def locked(path: Path, *, waiting_for: str) -> Iterator[None]:
    """Hold an exclusive lock on a file; the kernel frees it when the process ends, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note(f"waiting for {waiting_for}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
