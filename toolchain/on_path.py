"""Route 1: the Pulumi that is on PATH already."""

import re
import shutil
import subprocess
from pathlib import Path

from toolchain.errors import ToolchainError
from toolchain.tools import REBUILT_MARK, Toolchain
from toolchain.versions import versions

PYTHON_HOST = "pulumi-language-python"


def find() -> Toolchain | None:
    """The CLI on PATH, or None when there is none, or only one that we built.

    Raises ToolchainError when it is there and can't be used.
    """
    executable = shutil.which("pulumi")
    if executable is None:
        return None
    version = _version(Path(executable))
    if REBUILT_MARK in version:
        return None
    if not supported(version):
        raise ToolchainError(
            f"{executable} is Pulumi {version or 'of an unknown version'}; supported: {supported_range()}"
        )
    beside = Path(executable).resolve().parent / PYTHON_HOST
    if not beside.exists() and shutil.which(PYTHON_HOST) is None:
        raise ToolchainError(
            f"{executable} has no {PYTHON_HOST} beside it or on PATH, so it can't run Python programs"
        )
    return Toolchain(pulumi=Path(executable), version=version, origin="path")


def supported(version: str) -> bool:
    """Whether a CLI can run our program: the SDK's own version or later, of the same major."""
    found, sdk = _numbers(version), _numbers(versions().pulumi)
    return bool(found) and found[0] == sdk[0] and found >= sdk


def supported_range() -> str:
    """The versions that `supported` accepts, for a message."""
    sdk = versions().pulumi
    return f"v{sdk} (the Python SDK's) or later, before v{_numbers(sdk)[0] + 1}"


def _version(executable: Path) -> str:
    try:
        shown = subprocess.run(
            [executable, "version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return shown.stdout.strip().removeprefix("v")


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    return tuple(int(part) for part in match.groups()) if match else ()
