"""Several servers under the same load in turn, and how they compare round by round."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.clients import Load
from ops.daemon import children


@dataclass(frozen=True)
class Candidate:
    """What is measured: its name, what puts it under load once, and its process, if its CPU time counts."""

    name: str
    load: Callable[[], Load]
    pid: int | None = None


@dataclass(frozen=True)
class Measured:
    """A candidate over all rounds, in their order."""

    loads: tuple[Load, ...]
    cpu_us: tuple[float, ...]
    """CPU microseconds of its process and what that started, a request. Empty without a process."""

    @property
    def rates(self) -> "Spread":
        """Requests a second."""
        return Spread.of([load.rate for load in self.loads])

    @property
    def cpu(self) -> float | None:
        """The median of `cpu_us`."""
        return statistics.median(self.cpu_us) if self.cpu_us else None

    @property
    def failed(self) -> int:
        """Requests without an answer of 200, in all rounds."""
        return sum(load.failed for load in self.loads)

    def median(self, figure: Callable[[Load], float]) -> float:
        """The median of a figure of its loads."""
        return statistics.median(map(figure, self.loads))


@dataclass(frozen=True)
class Spread:
    """A median with the least and the most."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """That of these values."""
        return cls(statistics.median(values), min(values), max(values))

    def text(self, form: str = ".2f") -> str:
        """`0.93 (0.90 to 0.97)`."""
        return f"{self.median:{form}} ({self.least:{form}} to {self.most:{form}})"


def compare(candidates: Sequence[Candidate], rounds: int) -> dict[str, Measured]:
    """Each candidate once a round, every other round the other way round: what drifts meets all alike."""
    loads: dict[str, list[Load]] = {candidate.name: [] for candidate in candidates}
    cpu: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    for number in range(rounds):
        for candidate in candidates[:: -1 if number % 2 else 1]:
            before = cpu_seconds(candidate.pid) if candidate.pid else 0.0
            load = candidate.load()
            loads[candidate.name].append(load)
            if candidate.pid:
                spent = cpu_seconds(candidate.pid) - before
                cpu[candidate.name].append(1e6 * spent / max(load.requests, 1))
    return {name: Measured(tuple(loads[name]), tuple(cpu[name])) for name in loads}


def pairs(first: Measured, second: Measured, figure: Callable[[Load], float]) -> Spread:
    """The ratios of a figure, the first's to the second's of the same round."""
    return Spread.of([figure(a) / figure(b) for a, b in zip(first.loads, second.loads, strict=True)])


def added(first: Measured, second: Measured, figure: Callable[[Load], float]) -> Spread:
    """The differences of a figure, the first's from the second's of the same round."""
    return Spread.of([figure(a) - figure(b) for a, b in zip(first.loads, second.loads, strict=True)])


def cpu_seconds(pid: int) -> float:
    """What a process, its threads and those that it started have used, to the nanosecond."""
    own = sum(_nanoseconds(file) for file in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
    return own + sum(map(cpu_seconds, children(pid)))


def _nanoseconds(file: Path) -> int:
    return int(file.read_text().split()[0])


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """A table of Markdown, and an empty line after it."""
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *map(list, rows)]
    return [f"| {' | '.join(line)} |".replace(" --- ", "---") for line in lines] + [""]
