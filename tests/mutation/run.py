"""Runs a rule's own tests against one mutant after the other, each in a process of its own.

A process per rule collects the tests once and is forked for each mutant, whose tests begin with those that
noticed the ones before: what is left of a run is a fork and a few tests.
"""

import ast
import contextlib
import importlib
import json
import mmap
import os
import resource
import select
import signal
import struct
import sys
import time
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Literal, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "policies" / "rules"
TESTS = ROOT / "tests" / "policies"
Verdict = Literal["caught", "survived", "too long"]
_LONGEST_S = 90.0
_MOST_CPU_S = 15
_MORE_MEMORY = 2**30
# No plugin that writes, or reads what is written: nobody looks at it.
_OPTIONS = ("-q", "--tb=no", "--assert=plain", "--capture=no", "-p", "no:cacheprovider")
_WITHOUT = ("logging", "faulthandler", "junitxml", "warnings")
_NUMBER = struct.Struct("i")


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

    A run is killed after 15 s of CPU time, or a minute and a half: `too long`, which whoever waits notices.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        _collect(module, _Mutants(module, trees, processes, longest_s, os.fdopen(writing, "w")))
    os.setpgid(pid, pid)  # the end of a group is that of all processes which are made in it
    os.close(writing)
    told = 0
    try:
        with os.fdopen(reading) as said:
            for line in said:
                told += 1
                number, verdict = json.loads(line)
                yield number, verdict
    finally:
        _kill(pid, group=True)
    if told < len(trees):
        raise RuntimeError(f"the tests of {module} cannot be run: `pytest {own_tests(module)}` says why")


def _collect(module: str, mutants: "_Mutants") -> None:
    """Where the tests are collected; never returns."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    off = [word for name in _WITHOUT for word in ("-p", f"no:{name}")]
    try:
        pytest.main([*_OPTIONS, *off, str(own_tests(module))], plugins=[mutants])
    finally:
        mutants.out.flush()
        os._exit(0)


class _Run(NamedTuple):
    number: int
    pid: int
    ends_at: float


class _Mutants:
    """Takes the place of pytest's loop over the tests, as a plugin."""

    def __init__(
        self, module: str, trees: Sequence[ast.Module], processes: int, longest_s: float, out: IO[str]
    ) -> None:
        self.out = out
        self._module = module
        self._trees = trees
        self._processes = processes
        self._longest_s = longest_s
        self._failed = mmap.mmap(-1, _NUMBER.size * max(1, len(trees)))
        """Which test noticed a mutant, by its number, counted from 1: written by the mutant's own process."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Every mutant, several at a time."""
        order = list(range(len(session.items)))
        running: dict[int, _Run] = {}  # by what `select` waits for
        waiting = list(enumerate(self._trees))[::-1]
        while running or waiting:
            while waiting and len(running) < self._processes:
                number, tree = waiting.pop()
                pid = self._fork(number, tree, session, order)
                running[os.pidfd_open(pid)] = _Run(number, pid, time.monotonic() + self._longest_s)
            next_end = min(run.ends_at for run in running.values())
            ended, _, _ = select.select(list(running), [], [], max(0.0, next_end - time.monotonic()))
            late = [] if ended else [one for one, run in running.items() if run.ends_at <= time.monotonic()]
            for one in (*ended, *late):
                run = running.pop(one)
                os.close(one)
                if one in late:
                    _kill(run.pid)
                    self._tell(run.number, "too long")
                else:
                    self._tell(run.number, _verdict(os.waitpid(run.pid, 0)[1]))
                    self._to_the_front(order, run.number)
        return True

    def _tell(self, number: int, verdict: Verdict) -> None:
        print(json.dumps([number, verdict]), file=self.out, flush=True)

    def _to_the_front(self, order: list[int], number: int) -> None:
        (test,) = _NUMBER.unpack_from(self._failed, number * _NUMBER.size)
        if test:
            order.remove(test - 1)
            order.insert(0, test - 1)

    def _fork(self, number: int, tree: ast.Module, session: pytest.Session, order: Sequence[int]) -> int:
        pid = os.fork()
        if pid:
            return pid
        noticed = True
        try:
            _set_bounds()
            _install(self._module, tree)
            noticed = not order  # a file without a test notices nothing, and is no reason to pass
            for place, test in enumerate(order):
                following = session.items[order[place + 1]] if place + 1 < len(order) else None
                item = session.items[test]
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.testsfailed:
                    noticed = True
                    _NUMBER.pack_into(self._failed, number * _NUMBER.size, test + 1)
                    break
        except BaseException:  # noqa: BLE001 - whatever ends the run has noticed
            noticed = True
        finally:
            os._exit(int(noticed))


def _kill(pid: int, *, group: bool = False) -> None:
    # Nothing that a mutant does can hold this back.
    with contextlib.suppress(ProcessLookupError):  # it has ended, and so has its group
        (os.killpg if group else os.kill)(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _verdict(status: int) -> Verdict:
    if os.WIFSIGNALED(status):
        return "too long"
    return "survived" if status == 0 else "caught"


def _set_bounds() -> None:
    """A loop without an end may fill a list: it fails before the machine does."""
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_CPU_S, _MOST_CPU_S))
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MORE_MEMORY, used + _MORE_MEMORY))


def _install(module: str, tree: ast.Module) -> None:
    """Put the mutant where `import rules.<module>` finds it, and have the rules listed anew."""
    rules = importlib.import_module("rules")
    made = types.ModuleType(f"rules.{module}")
    made.__file__ = str(RULES / f"{module}.py")
    sys.modules[made.__name__] = made
    exec(compile(tree, made.__file__, "exec"), made.__dict__)  # noqa: S102 - our own rule
    setattr(rules, module, made)
    importlib.import_module("pack.registry").all_rules.cache_clear()
