"""docs/drills.md: one row for each drill and protocol, kept as each is played."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from drills.records import ANSWERED, summary
from tests.pulumi_project import CHECKOUT

if TYPE_CHECKING:
    from drills.plays import Play
    from drills.stage import Traffic

FILE = CHECKOUT / "docs" / "drills.md"
_HEAD = """# Drills

Written by `make drills`: each is played on a real Docker Engine and the real Envoy, with the simulator as the
server, while clients ask over REST and gRPC at a constant rate and count every request. They retry nothing.
Latencies begin when a request was due: where its client still waited for another one, that is a part of it.

| # | drill | what must hold | protocol | requests | failed | p50, ms | p99, ms | longest gap, s | seen |
|---|---|---|---|---|---|---|---|---|---|
"""
_LATE_S = 1.0
_ROW = re.compile(r"^\| (\d+) \|")


def row(play: "Play", traffic: "Traffic") -> str:
    """The rows of a drill that was played; what else was seen is said in the first."""
    rows = []
    seen = "; ".join(traffic.seen)
    for protocol, requests in traffic.requests.items():
        begin = f"| {play.number} | {play.title} | {play.holds} | {protocol} | {len(requests)}"
        if any(request.outcome == ANSWERED for request in requests):
            found = summary(requests)
            figures = f"{found.p50_ms:.1f} | {found.p99_ms:.1f} | {found.longest_gap_s:.2f}"
            if found.latest_s > _LATE_S:
                late = f"{protocol}: sent up to {found.latest_s:.1f} s after they were due"
                seen = f"{seen}; {late}" if seen else late
            rows.append(f"{begin} | {found.failures} | {figures} | {seen} |")
        else:
            rows.append(f"{begin} | all | | | | {seen} |")
        seen = ""
    return "\n".join(rows)


def failed(play: "Play") -> str:
    """The row of a drill that did not hold."""
    return f"| {play.number} | {play.title} | **did not hold**: {play.holds} | | | | | | | |"


def keep(lines: Mapping[int, str], foot: str) -> None:
    """Write the rows of this run, and those of earlier ones for drills that were not played in it."""
    kept: dict[int, list[str]] = {}
    if FILE.exists():
        for line in FILE.read_text().splitlines():
            if found := _ROW.match(line):
                kept.setdefault(int(found[1]), []).append(line)
    rows = {**{number: "\n".join(rows) for number, rows in kept.items()}, **lines}
    FILE.write_text(_HEAD + "\n".join(rows[number] for number in sorted(rows)) + f"\n\n{foot}\n")
