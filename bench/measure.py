"""Runs commands in turn and times each as a whole, with everything that it starts."""

import os
import platform
import signal
import statistics
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ops.daemon import children

_SAMPLE_S = 0.1


@dataclass(frozen=True)
class Sample:
    """One run: seconds by the clock and of CPU, and the most memory (MiB) and processes at once.

    `peak_mib` adds up what each process has in memory, `peak_shared_once_mib` counts pages once that several
    share: a plugin's own code, mostly.
    """

    wall_s: float
    cpu_s: float
    peak_mib: float
    peak_shared_once_mib: float
    processes: int
    cpu_by_program: Mapping[str, float]
    """As sampled: the last tenth of a second of each process is not in it."""


def run(command: Sequence[str], *, cwd: Path, env: Mapping[str, str], longest_s: float = 600) -> Sample:
    """Run a command to its end. Raises RuntimeError with its output where it fails or lasts too long."""
    before, start = os.times(), time.monotonic()
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        watcher = _Watcher(process.pid)
        try:
            output, _ = process.communicate(timeout=longest_s)
        except subprocess.TimeoutExpired:
            _kill_group(process.pid)
            raise RuntimeError(f"{' '.join(command)} was not done after {longest_s:.0f} s") from None
        except BaseException:  # an interrupt does not reach a session of its own
            _kill_group(process.pid)
            raise
        finally:
            watcher.stop()
    wall, after = time.monotonic() - start, os.times()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{output[-4000:]}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Sample(
        wall,
        cpu,
        watcher.peak_kib / 1024,
        watcher.peak_shared_once_kib / 1024,
        watcher.most,
        watcher.cpu_by_program(),
    )


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def ratio(first: Sequence[float], second: Sequence[float]) -> float:
    """The median of the ratios of each pair."""
    return statistics.median(a / b for a, b in zip(first, second, strict=True))


def machine() -> str:
    """The machine in words."""
    model = next(
        (
            line.partition(": ")[2]
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores of {model}, {memory:.0f} GiB, {platform.system()} {platform.release()}"


class _Watcher:
    def __init__(self, root: int) -> None:
        self.peak_kib = 0
        self.peak_shared_once_kib = 0
        self.most = 0
        self._cpu: dict[int, tuple[str, float]] = {}
        self._root = root
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def cpu_by_program(self) -> dict[str, float]:
        total: dict[str, float] = defaultdict(float)
        for name, seconds in self._cpu.values():
            total[name] += seconds
        return dict(total)

    def _watch(self) -> None:
        pause_s = _SAMPLE_S
        while not self._stop.wait(pause_s):
            start = time.monotonic()
            pids = _family(self._root)
            self.most = max(self.most, len(pids))
            self._cpu |= {pid: used for pid in pids if (used := _cpu_seconds(pid))}
            resident, shared_once = map(sum, zip(*map(_memory_kib, pids), strict=True))
            self.peak_kib = max(self.peak_kib, resident)
            self.peak_shared_once_kib = max(self.peak_shared_once_kib, shared_once)
            # With a hundred processes a look takes its time too: not more than a twentieth of all.
            pause_s = max(_SAMPLE_S, 20 * (time.monotonic() - start))


def _family(root: int) -> list[int]:
    family, queue = [], [root]
    while queue:
        pid = queue.pop()
        family.append(pid)
        queue += children(pid)
    return family


def _cpu_seconds(pid: int) -> tuple[str, float] | None:
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    except OSError:
        return None
    user, system = rest.split()[11:13]
    return name, (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _memory_kib(pid: int) -> tuple[int, int]:
    """What is in memory for a process; and that with shared pages divided among who shares them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0, 0
    found = {name: int(rest.split()[0]) for line in lines[1:] for name, _, rest in [line.partition(":")]}
    return found.get("Rss", 0), found.get("Pss", 0)
