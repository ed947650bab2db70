"""The virtual environment that Pulumi, the checks and the tests run in."""

import hashlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from toolchain.cache import locked
from toolchain.errors import ToolchainError
from toolchain.process import run
from toolchain.progress import step
from toolchain.versions import DEV_LOCK, LOCK, POLICY_LOCK, REPOSITORY

VENV = REPOSITORY / ".venv"
POLICY_VENV = REPOSITORY / "policies" / ".venv"
STAMP = ".made-from.json"


def ensure_venv(*, dev: bool = False) -> Path:
    """Path of `.venv/bin/python`, with exactly what the lock file names; a no-op when it is up to date.

    With `dev` it has the tools for checks and tests too. It is made anew when the checkout was moved, since
    the scripts in it name their interpreter by its full path.
    """
    return _ensure(VENV, _locks(dev=dev))


def ensure_policy_venv() -> Path:
    """The same for the policy pack, which Pulumi runs in an environment of its own."""
    return _ensure(POLICY_VENV, (POLICY_LOCK,))


def _ensure(venv: Path, locks: Sequence[Path]) -> Path:
    if _up_to_date(venv, locks):
        return _python(venv)
    with locked(REPOSITORY / ".local" / "venv.lock", waiting_for="another run that makes .venv"):
        if not _up_to_date(venv, locks):
            _make(venv, locks)
    return _python(venv)


def up_to_date(venv: Path, *, dev: bool) -> bool:
    """Whether a virtual environment was made here, whole, from the present lock file."""
    return _up_to_date(venv, _locks(dev=dev))


def _up_to_date(venv: Path, locks: Sequence[Path]) -> bool:
    try:
        stamp = json.loads((venv / STAMP).read_text())
    except (OSError, ValueError):
        return False
    wanted = _stamp(venv, locks)
    return all(stamp.get(name) == value for name, value in wanted.items()) and _python(venv).exists()


def make_venv(venv: Path, *, dev: bool) -> None:
    """Create or refresh a virtual environment from the lock file."""
    _make(venv, _locks(dev=dev))


def _make(venv: Path, locks: Sequence[Path]) -> None:
    lock = locks[-1]
    shown = [
        path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path for path in (lock, venv)
    ]
    with step(f"Install Python packages from {shown[0]} into {shown[1]}", "20 to 60 s"):
        if not _usable(venv):
            _create(venv)
        (venv / STAMP).unlink(missing_ok=True)
        install = pip(_python(venv), "install", "--no-deps", "--require-hashes", "-r", lock)
        run(install, what=f"install {lock.name}")
        (venv / STAMP).write_text(json.dumps(_stamp(venv, locks), indent=2))


def _shown(path: Path) -> Path:
    return path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path


def pip(python: Path, *arguments: str | Path) -> list[str | Path]:
    """The command that runs a Python's pip, quietly."""
    return [python, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]


def _locks(*, dev: bool) -> tuple[Path, ...]:
    """The lock files that an environment is made from; the last one names all packages."""
    return (LOCK, DEV_LOCK) if dev else (LOCK,)


def _stamp(venv: Path, locks: Sequence[Path]) -> dict[str, str]:
    hashes = {lock.name: hashlib.sha256(lock.read_bytes()).hexdigest() for lock in locks}
    return {"path": str(venv.resolve()), **hashes}


def _usable(venv: Path) -> bool:
    """Whether packages can go into it: ours, made at this very path, with its interpreter still there."""
    pip = venv / "bin" / "pip"
    if venv.is_symlink() or not _python(venv).exists() or not pip.exists():
        return False
    return str(venv) in pip.read_text(errors="replace")[:500]


def _create(venv: Path) -> None:
    if importlib.util.find_spec("ensurepip") is None:
        _install_ensurepip()
    if venv.is_symlink():
        venv.unlink()  # else the environment that it points to, another checkout's perhaps, would be emptied
    # Not sys.executable: a running .venv/bin/python can't replace the environment that it runs from.
    base = getattr(sys, "_base_executable", None) or sys.executable
    run([base, "-m", "venv", "--clear", venv], what=f"create {venv}")


def _install_ensurepip() -> None:
    package = f"python3.{sys.version_info.minor}-venv"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise ToolchainError(
            f"python3 ({sys.executable}) can't make virtual environments: its `ensurepip` is missing. "
            f"On Debian and Ubuntu type: sudo apt-get install {package}"
        )
    apt = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with step(f"Install {package}, which this Debian's python3 lacks", "15 s"):
        run(["apt-get", "update", "-qq"], what="refresh apt's package lists", env=apt)
        run(
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package],
            what=f"install {package}",
            env=apt,
        )


def _python(venv: Path) -> Path:
    return venv / "bin" / "python"
