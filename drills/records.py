"""What became of the requests of a drill."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

ANSWERED = "answered"


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request: times in seconds of the monotonic clock, and how it ended.

    It was due before it was sent where its client still waited for another one: a user would have waited too.
    """

    due_s: float
    start_s: float
    duration_s: float
    outcome: str
    served_by: str
    version: str

    @property
    def end_s(self) -> float:
        """When its end was known."""
        return self.start_s + self.duration_s

    @property
    def latency_s(self) -> float:
        """From when it was due."""
        return self.end_s - self.due_s

    def line(self) -> str:
        """As a line of text."""
        begin = f"{self.due_s:.6f},{self.start_s:.6f}"
        return f"{begin},{self.duration_s:.6f},{self.outcome},{self.served_by},{self.version}"

    @staticmethod
    def of(line: str) -> "Request":
        """From a line of text."""
        due, start, duration, outcome, served_by, version = line.split(",")
        return Request(
            due_s=float(due),
            start_s=float(start),
            duration_s=float(duration),
            outcome=outcome,
            served_by=served_by,
            version=version,
        )


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Figures over requests; latencies are of those that were answered, from when they were due."""

    requests: int
    failed: Counter[str]
    p50_ms: float
    p99_ms: float
    longest_gap_s: float
    """The longest time in which nothing was answered."""
    latest_s: float
    """How long after it was due a request was sent, at most."""

    @property
    def failures(self) -> int:
        """How many were not answered."""
        return self.failed.total()


def summary(requests: Sequence[Request]) -> Summary:
    """The figures; raises ValueError where nothing was answered at all."""
    answered = [request for request in requests if request.outcome == ANSWERED]
    if not answered:
        raise ValueError(f"none of {len(requests)} requests was answered: {_failed(requests)}")
    latencies = sorted(request.latency_s for request in answered)
    ends = sorted(request.end_s for request in answered)
    return Summary(
        requests=len(requests),
        failed=_failed(requests),
        p50_ms=1000 * latencies[len(latencies) // 2],
        p99_ms=1000 * latencies[int(len(latencies) * 0.99)],
        longest_gap_s=max((later - earlier for earlier, later in pairwise(ends)), default=0.0),
        latest_s=max(request.start_s - request.due_s for request in requests),
    )


def share(requests: Iterable[Request], version: str) -> tuple[int, int]:
    """How many of the answered requests a version served, and how many were answered."""
    versions = [request.version for request in requests if request.outcome == ANSWERED]
    return versions.count(version), len(versions)


def _failed(requests: Iterable[Request]) -> Counter[str]:
    return Counter(request.outcome for request in requests if request.outcome != ANSWERED)
