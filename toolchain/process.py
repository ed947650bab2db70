"""Runs a command quietly, and shows what it said only when it fails."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolchain.errors import ToolchainError

SHOWN_LINES = 25


def run(
    command: Sequence[str | Path], *, what: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Run a command and return its standard output.

    Raises ToolchainError with the end of what it printed when it fails. On Ctrl-C it is ended and waited for.
    """
    with subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            stdout, stderr = process.communicate()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if process.returncode != 0:
        tail = "\n".join(f"  {line}" for line in (stdout + stderr).strip().splitlines()[-SHOWN_LINES:])
        shown = " ".join(str(part) for part in command)
        raise ToolchainError(
            f"could not {what}: exit code {process.returncode} from\n  {shown}\nIt said:\n{tail}"
        )
    return stdout
