"""Runs modules of `ops` that need packages, such as those that read a stack file."""

import os
import subprocess

from ops import paths
from ops.errors import UserError


def printed(module: str, *arguments: str) -> str:
    """What a module prints in the virtual environment, which must be there. Raises UserError."""
    done = subprocess.run(
        [str(paths.PYTHON), "-m", module, *arguments],
        cwd=paths.ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise UserError(done.stderr.strip())
    return done.stdout
