"""Runs a rule's own tests against one mutant after the other, each in a process of its own.

The process is forked from one that has imported the SDK and pytest: nearly all of a run's time otherwise.
"""

import ast
import importlib
import os
import resource
import select
import signal
import sys
import time
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "policies" / "rules"
TESTS = ROOT / "tests" / "policies"
Verdict = Literal["caught", "survived", "too long"]
_LONGEST_S = 90.0
_MORE_MEMORY = 2**30
_OPTIONS = (
    "-x",
    "-q",
    "--no-header",
    "--tb=no",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:faulthandler",
    "--assert=plain",
)
_USED = ("pack.adapter", "tests.conftest", "tests.policies.judge")


def rule_files() -> dict[str, Path]:
    """The file of each rule by its module's name."""
    return {file.stem: file for file in sorted(RULES.glob("*.py")) if file.stem != "__init__"}


def own_tests(module: str) -> Path:
    """A rule's own tests."""
    return TESTS / f"test_{module}.py"


def verdicts(
    module: str, trees: Sequence[ast.Module], processes: int, longest_s: float = _LONGEST_S
) -> Iterator[tuple[int, Verdict]]:
    """What the tests of a rule say of each mutant, as it is known: caught where one of them fails.

    A run of more than a minute and a half is killed: `too long`, which is noticed by whoever waits for it.
    """
    for name in _USED:
        importlib.import_module(name)
    running: dict[int, _Run] = {}  # by what `select` waits for
    waiting = list(enumerate(trees))[::-1]
    try:
        while running or waiting:
            while waiting and len(running) < processes:
                number, tree = waiting.pop()
                pid = _fork(module, tree)
                running[os.pidfd_open(pid)] = _Run(number, pid, time.monotonic() + longest_s)
            next_end = min(run.ends_at for run in running.values())
            ended, _, _ = select.select(list(running), [], [], max(0.0, next_end - time.monotonic()))
            late = [] if ended else [one for one, run in running.items() if run.ends_at <= time.monotonic()]
            for one in (*ended, *late):
                run = running.pop(one)
                os.close(one)
                if one in late:
                    _kill(run.pid)
                    yield run.number, "too long"
                else:
                    yield run.number, _verdict(os.waitpid(run.pid, 0)[1])
    finally:
        for run in running.values():
            _kill(run.pid)


class _Run(NamedTuple):
    number: int
    pid: int
    ends_at: float


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)  # nothing that a mutant does can hold this back
    os.waitpid(pid, 0)


def _verdict(status: int) -> Verdict:
    return "survived" if status == 0 else "caught"


def _fork(module: str, tree: ast.Module) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _bound_memory()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        _install(module, tree)
        code = int(pytest.main([*_OPTIONS, str(own_tests(module))]))
    finally:
        os._exit(code)


def _bound_memory() -> None:
    """A loop without an end may fill a list: it fails before the machine does."""
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MORE_MEMORY, used + _MORE_MEMORY))


def _install(module: str, tree: ast.Module) -> None:
    """Put the mutant where `import rules.<module>` finds it."""
    rules = importlib.import_module("rules")
    made = types.ModuleType(f"rules.{module}")
    made.__file__ = str(RULES / f"{module}.py")
    sys.modules[made.__name__] = made
    exec(compile(tree, made.__file__, "exec"), made.__dict__)  # noqa: S102 - our own rule
    setattr(rules, module, made)
