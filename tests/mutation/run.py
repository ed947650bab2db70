"""Runs a rule's own tests against one mutant after the other, each in a process of its own.

The process is forked from one that has imported the SDK and pytest: nearly all of a run's time otherwise.
"""

import ast
import importlib
import os
import signal
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import pytest

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "policies" / "rules"
TESTS = ROOT / "tests" / "policies"
Verdict = Literal["caught", "survived", "too long"]
_LONGEST_S = 90
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


def verdicts(module: str, trees: Sequence[ast.Module], processes: int) -> Iterator[tuple[int, Verdict]]:
    """What the tests of a rule say of each mutant, as it is known: caught where one of them fails.

    A run of more than a minute and a half ends as `too long`, which is noticed by whoever waits for it.
    """
    for name in _USED:
        importlib.import_module(name)
    running: dict[int, int] = {}
    waiting = list(enumerate(trees))[::-1]
    try:
        while running or waiting:
            while waiting and len(running) < processes:
                number, tree = waiting.pop()
                running[_fork(module, tree)] = number
            pid, status = os.wait()
            if pid in running:
                yield running.pop(pid), _verdict(status)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)


def _verdict(status: int) -> Verdict:
    if os.WIFSIGNALED(status):
        return "too long" if os.WTERMSIG(status) == signal.SIGALRM else "caught"
    return "survived" if os.WEXITSTATUS(status) == 0 else "caught"


def _fork(module: str, tree: ast.Module) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.alarm(_LONGEST_S)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        _install(module, tree)
        code = int(pytest.main([*_OPTIONS, str(own_tests(module))]))
    finally:
        os._exit(code)


def _install(module: str, tree: ast.Module) -> None:
    """Put the mutant where `import rules.<module>` finds it."""
    rules = importlib.import_module("rules")
    made = types.ModuleType(f"rules.{module}")
    made.__file__ = str(RULES / f"{module}.py")
    sys.modules[made.__name__] = made
    exec(compile(tree, made.__file__, "exec"), made.__dict__)  # noqa: S102 - our own rule
    setattr(rules, module, made)
