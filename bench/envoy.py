"""A prediction through Envoy against one straight from an instance, both over REST, interleaved."""

import http.client
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.part import Part
from components.server_spec import REST_PORT
from images.envoy import envoy_binary
from tests.envoy.harness import site
from toolchain.tools import Toolchain

_PAIRS = 5
_SECONDS = 3.0
_BODY = json.dumps({"instances": [1.0]})


def report(_toolchain: Toolchain) -> Iterator[str]:
    """Latency with one client and throughput with eight, over servers that do next to nothing."""
    yield "| clients | direct p50, ms | p99 | per s | Envoy p50, ms | p99 | per s | added p50 | added p99 |"
    yield "|---|---|---|---|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as folder, site(envoy_binary(), Path(folder)) as made:
        direct = (str(made.plan.pools[0].endpoints[0].address), REST_PORT)
        through = ("127.0.0.1", made.plan.spec.rest_port)
        for clients in (1, 8):
            pairs = [(_load(*direct, clients), _load(*through, clients)) for _ in range(_PAIRS)]
            rows = [[_figures(sample) for sample in pair] for pair in pairs]
            medians = [
                [statistics.median(row[side][figure] for row in rows) for figure in range(3)]
                for side in range(2)
            ]
            (p50, p99, rate), (p50_envoy, p99_envoy, rate_envoy) = medians
            yield (
                f"| {clients} | {p50:.2f} | {p99:.2f} | {rate:.0f} | {p50_envoy:.2f} | {p99_envoy:.2f} "
                f"| {rate_envoy:.0f} | {p50_envoy - p50:.2f} | {p99_envoy - p99:.2f} |"
            )


def _figures(times: list[float]) -> tuple[float, float, float]:
    ordered = sorted(times)
    return (
        1000 * ordered[len(ordered) // 2],
        1000 * ordered[int(len(ordered) * 0.99)],
        len(times) / _SECONDS,
    )


def _load(host: str, port: int, clients: int) -> list[float]:
    end = time.monotonic() + _SECONDS
    times: list[float] = []

    def ask() -> None:
        connection = http.client.HTTPConnection(host, port, timeout=30)
        while (start := time.monotonic()) < end:
            connection.request("POST", "/v1/models/resnet:predict", _BODY)
            connection.getresponse().read()
            times.append(time.monotonic() - start)
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


PARTS = {"envoy": Part("Envoy against a direct call", report)}
