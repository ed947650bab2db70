"""Which Python runs a program, by the options of its Pulumi.yaml or PulumiPolicy.yaml."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pulumi.runtime.proto import language_pb2


class InterpreterError(Exception):
    """There is no interpreter to run the program with; the text is for the user."""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A Python, and the virtual environment that it belongs to if the project names one."""

    python: Path
    venv: Path | None

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment for the program: as if the virtual environment had been activated."""
        env = {name: value for name, value in base.items() if name != "PYTHONHOME"}
        if self.venv is not None:
            env["VIRTUAL_ENV"] = str(self.venv)
            env["PATH"] = os.pathsep.join([str(self.venv / "bin"), env.get("PATH", os.defpath)])
        return env

    def version(self) -> str:
        """The version of Python."""
        shown = self._query("import platform; print(platform.python_version())")
        return shown.strip()

    def packages(self, *, transitive: bool) -> dict[str, str]:
        """Installed packages and their versions; without `transitive`, those that no other one asks for."""
        listed: dict[str, str] = json.loads(self._query(_LIST_ALL if transitive else _LIST_DIRECT))
        return listed

    def plugin_files(self) -> list[Path]:
        """What Pulumi packages say about the plugin that they need."""
        found: list[str] = json.loads(self._query(_LIST_PLUGIN_FILES))
        return [Path(file) for file in found]

    def _query(self, code: str) -> str:
        command = [str(self.python), "-I", "-c", code]
        env = self.environment(os.environ)
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


def find(info: language_pb2.ProgramInfo) -> Interpreter:
    """The interpreter for a program. Raises InterpreterError."""
    root = Path(info.root_directory)
    option = dict(info.options.items()).get("virtualenv")
    if option is None:
        command = os.environ.get("PULUMI_PYTHON_CMD", "python3")
        if (python := shutil.which(command)) is None:
            raise InterpreterError(f"{command} is not on PATH, and {root} names no virtual environment")
        return Interpreter(python=Path(python), venv=None)
    venv = root / str(option)
    python_in_venv = venv / "bin" / "python"
    if not python_in_venv.exists():
        raise InterpreterError(
            f"the virtual environment {venv} (option `virtualenv` in {root}) has no bin/python: "
            "make it with `python3 -m toolchain setup`, or with `pulumi install`"
        )
    return Interpreter(python=python_in_venv, venv=venv)


_LIST_ALL = """
import importlib.metadata as m, json
print(json.dumps({d.metadata["Name"]: d.version for d in m.distributions()}))
"""
_LIST_DIRECT = """
import importlib.metadata as m, json, re
plain = lambda name: re.sub(r"[-_.]+", "-", name).lower()
needed = {plain(re.match(r"[A-Za-z0-9._-]+", r).group()) for d in m.distributions() for r in d.requires or ()}
found = {d.metadata["Name"]: d.version for d in m.distributions()}
print(json.dumps({name: version for name, version in found.items() if plain(name) not in needed}))
"""
_LIST_PLUGIN_FILES = """
import json, pathlib, sys
print(json.dumps(sorted(str(f) for p in sys.path for f in pathlib.Path(p).glob("*/pulumi-plugin.json"))))
"""
