"""Runs commands in turn and times each as a whole, with everything that it starts."""

import os
import statistics
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ops.daemon import children

_SAMPLE_S = 0.1


@dataclass(frozen=True)
class Sample:
    """One run: seconds by the clock and of CPU, and the most memory (MiB) and processes at once."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    processes: int


def run(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> Sample:
    """Run a command to its end. Raises RuntimeError with its output where it fails."""
    before, start = os.times(), time.monotonic()
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        watcher = _Watcher(process.pid)
        output, _ = process.communicate()
        watcher.stop()
    wall, after = time.monotonic() - start, os.times()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{output[-4000:]}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Sample(wall, cpu, watcher.peak_kib / 1024, watcher.most)


def ratio(first: Sequence[float], second: Sequence[float]) -> float:
    """The median of the ratios of each pair."""
    return statistics.median(a / b for a, b in zip(first, second, strict=True))


class _Watcher:
    def __init__(self, root: int) -> None:
        self.peak_kib = 0
        self.most = 0
        self._root = root
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            pids = _family(self._root)
            self.peak_kib = max(self.peak_kib, sum(map(_resident_kib, pids)))
            self.most = max(self.most, len(pids))


def _family(root: int) -> list[int]:
    family, queue = [], [root]
    while queue:
        pid = queue.pop()
        family.append(pid)
        queue += children(pid)
    return family


def _resident_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS:")), 0)
