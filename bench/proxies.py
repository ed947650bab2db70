"""Envoy as we configure it beside a minimal Envoy, nginx and HAProxy: same servers, same run, same cores."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench.clients import Load, require
from bench.pairs import Candidate, Measured, added, compare, pairs, table
from bench.part import Part
from bench.proxy_processes import BODY, DIRECT, HAPROXY, MINIMAL, OURS, QUIET, Proxy, every_proxy
from toolchain.tools import Toolchain

ROUNDS = 10
_SECONDS = 2
_GRPC_SECONDS = 1
FEW, MANY = 1, 32
LEAST_OF_MINIMAL = 0.90
MOST_P99 = 1.20
MOST_ADDED_MS = 0.5


def rest(_toolchain: Toolchain) -> Iterator[str]:
    """REST with 1 and with 32 clients, and whether the goals were met."""
    found: dict[int, Mapping[str, Measured]] = {}
    yield from _report("REST", lambda proxy, clients: proxy.over_rest(clients, _SECONDS), found)
    yield goals(found[FEW], found[MANY])
    yield ""
    yield said_of_haproxy(found[FEW], found[MANY])


def grpc(_toolchain: Toolchain) -> Iterator[str]:
    """The same over gRPC."""
    found: dict[int, Mapping[str, Measured]] = {}
    yield from _report("gRPC", lambda proxy, clients: proxy.over_grpc(clients, _GRPC_SECONDS), found)


def _report(
    protocol: str, candidate: Callable[[Proxy, int], Candidate], found: dict[int, Mapping[str, Measured]]
) -> Iterator[str]:
    require("nginx", "haproxy", "wrk", "h2load")
    with tempfile.TemporaryDirectory() as folder, every_proxy(Path(folder)) as proxies:
        for clients in (FEW, MANY):
            yield f"{protocol}, {clients} at a time, {len(BODY)} bytes:"
            yield ""
            found[clients] = compare([candidate(proxy, clients) for proxy in proxies], ROUNDS)
            yield from _table(found[clients])


def _table(found: Mapping[str, Measured]) -> Iterator[str]:
    head = (
        "proxy", "requests/s", "of the minimal Envoy", "CPU, us a request", "p50, ms", "p99, ms",
        "p99 to the minimal's", "p50 added, ms", "failed",
    )  # fmt: skip
    rows = []
    for name, measured in found.items():
        rows.append(
            [
                name,
                measured.rates.text(".0f"),
                pairs(measured, found[MINIMAL], rate).text(),
                "" if measured.cpu is None else f"{measured.cpu:.0f}",
                f"{measured.median(p50):.2f}",
                f"{measured.median(p99):.2f}",
                pairs(measured, found[MINIMAL], p99).text(),
                added(measured, found[DIRECT], p50).text(),
                str(measured.failed),
            ]
        )
    yield from table(head, rows)


def goals(few: Mapping[str, Measured], many: Mapping[str, Measured]) -> str:
    """What was wanted, and what came of it."""
    checked = [
        (
            pairs(many[OURS], many[MINIMAL], rate).median,
            LEAST_OF_MINIMAL,
            "of the minimal Envoy's requests/s",
        ),
        (pairs(few[OURS], few[MINIMAL], p99).median, MOST_P99, "of its p99 with one request in flight"),
        (added(few[OURS], few[DIRECT], p50).median, MOST_ADDED_MS, "ms added at p50"),
    ]
    said = []
    for position, (measured, limit, what) in enumerate(checked):
        met = round(measured, 2) >= limit if position == 0 else round(measured, 2) <= limit
        bound = "or more" if position == 0 else "or less"
        said.append(f"{measured:.2f} {what} (wanted: {limit:.2f} {bound}{'' if met else '; missed'})")
    quiet = pairs(many[QUIET], many[MINIMAL], rate).median
    return (
        f"Ours, over REST: {', '.join(said)}. With errors alone in its log it does {quiet:.2f} of the "
        "minimal one's requests/s, which logs nothing."
    )


def said_of_haproxy(few: Mapping[str, Measured], many: Mapping[str, Measured]) -> str:
    """What the fastest of the others would save."""
    own, other = many[OURS].cpu, many[HAPROXY].cpu
    assert own is not None  # noqa: S101 - it has a process
    assert other is not None  # noqa: S101
    faster = pairs(many[HAPROXY], many[OURS], rate).median
    earlier = added(few[OURS], few[HAPROXY], p50).median
    return (
        f"HAProxy does {faster:.1f} x the requests/s of our Envoy on one core: {other:.0f} instead of "
        f"{own:.0f} us of CPU a request. At 1,000 requests/s it would save {(own - other) / 1000:.2f} of a "
        f"core, and {earlier:.2f} ms of each request."
    )


def rate(load: Load) -> float:
    """Requests a second."""
    return load.rate


def p50(load: Load) -> float:
    """The median latency."""
    return load.p50_ms


def p99(load: Load) -> float:
    """The latency that 99 of 100 requests stay below."""
    return load.p99_ms


PARTS = {
    "proxies-rest": Part("Envoy beside a minimal Envoy, nginx and HAProxy: REST", rest),
    "proxies-grpc": Part("Envoy beside a minimal Envoy, nginx and HAProxy: gRPC", grpc),
}
