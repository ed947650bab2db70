"""`make lock`: the lock files of Python packages."""

import os
import subprocess

from ops import paths
from ops.processes import run_through
from toolchain import python_env


def write_locks() -> int:
    """Write the lock files, with hashes, by a resolver in a virtual environment of its own."""
    folder = paths.LOCAL / "resolver"  # not `lock`: that is the file which `make up` holds
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([str(python_env.ensure_venv(dev=True)), "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "uv"], check=True)
    for name in ("requirements", "requirements-dev", "policies/requirements"):
        options = ["--generate-hashes", "--no-header", "--no-annotate", "--python-version=3.11", "--quiet"]
        options.append("--override=requirements-overrides.txt")
        command = [str(python), "-m", "uv", "pip", "compile", *options, f"{name}.in", "-o", f"{name}.txt"]
        code = run_through(command, cwd=paths.ROOT, env=os.environ)
        if code != 0:
            return code
    return 0
