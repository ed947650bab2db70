"""REST against gRPC by the size of a tensor, through our Envoy: what the proxy does with it, and a server.

The client sends what was encoded before; how long Python takes for that stands beside it.
"""

import json
import random
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.clients import require
from bench.pairs import Candidate, Measured, compare, table
from bench.part import Part
from bench.proxies import p50, rate
from bench.proxy_processes import MODEL, Proxy, ours
from bench.simulated import Setting, simulated
from tests.integration.predict import message
from toolchain.tools import Toolchain

FLOATS = (1, 1_000, 100_000, 1_000_000)
_SECONDS = 2
_ROUNDS = 3
_FLOAT = 1  # DataType.DT_FLOAT
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A request: one example of so many floats, in one of the two forms."""

    floats: int
    form: str
    size: int
    encoding_ms: float
    candidate: Callable[[Proxy], Candidate]
    """Its load on a proxy."""

    @property
    def name(self) -> str:
        """Unique among all."""
        return f"{self.form} {self.floats}"


def report(_toolchain: Toolchain) -> Iterator[str]:
    """One request at a time: with servers that read nothing, then with the simulator."""
    require("nginx", "wrk", "h2load")
    sent = [one for floats in FLOATS for one in requests(floats)]
    with tempfile.TemporaryDirectory() as folder, ours(Path(folder) / "ours") as (proxy, _):
        alone = compare([_named(one, proxy) for one in sent], _ROUNDS)
    with simulated(1, Setting(max_batch=None), base_ms=0, per_example_ms=0) as running:
        spec = running.plan.spec
        proxy = Proxy(name="", rest_port=spec.rest_port, grpc_port=spec.grpc_port, pid=None)
        served = compare([_named(one, proxy) for one in sent], _ROUNDS)
    yield "One request at a time, one example of so many floats:"
    yield ""
    head = ("floats", "form", "bytes", "encoded in Python, ms", "Envoy: p50, ms", "per s", "CPU, ms")
    yield from table(
        [*head, "with the simulator: p50, ms", "per s", "failed"],
        (_row(one, alone[one.name], served[one.name]) for one in sent),
    )
    yield said(sent, alone, served)


def _named(one: Sent, proxy: Proxy) -> Candidate:
    made = one.candidate(proxy)
    return Candidate(one.name, made.load, made.pid)


def requests(floats: int) -> Iterator[Sent]:
    """The request in both forms."""
    rng = random.Random(floats)  # noqa: S311 - not a secret
    values = [round(rng.random(), 6) for _ in range(floats)]
    body, spent_ms = _timed(lambda: json.dumps({"instances": [values]}, separators=(",", ":")))
    yield Sent(
        floats=floats,
        form="REST, JSON",
        size=len(body),
        encoding_ms=spent_ms,
        candidate=lambda proxy: proxy.over_rest(1, _SECONDS, body),
    )
    binary, spent_ms = _timed(lambda: predict_request(array("f", values).tobytes(), floats))
    yield Sent(
        floats=floats,
        form="gRPC, binary",
        size=len(binary),
        encoding_ms=spent_ms,
        candidate=lambda proxy: proxy.over_grpc(1, _SECONDS, binary),
    )


def _timed(encode: Callable[[], _T]) -> tuple[_T, float]:
    """What came of it, and the least milliseconds of three."""
    spent = []
    for _ in range(3):
        start = time.perf_counter()
        encoded = encode()
        spent.append(1000 * (time.perf_counter() - start))
    return encoded, min(spent)


def predict_request(content: bytes, floats: int) -> bytes:
    """One example in the input `x`; its floats, four bytes each, are the message's `tensor_content`."""
    request = message("PredictRequest")()
    request.model_spec.name = MODEL
    tensor = request.inputs["x"]
    tensor.dtype = _FLOAT
    for size in (1, floats):
        tensor.tensor_shape.dim.add().size = size
    tensor.tensor_content = content
    return bytes(request.SerializeToString())


def _row(one: Sent, alone: Measured, served: Measured) -> list[str]:
    return [
        f"{one.floats:,}",
        one.form,
        f"{one.size:,}",
        f"{one.encoding_ms:.2f}",
        f"{alone.median(p50):.2f}",
        f"{alone.median(rate):.0f}",
        f"{(alone.cpu or 0) / 1000:.2f}",
        f"{served.median(p50):.2f}",
        f"{served.median(rate):.0f}",
        str(alone.failed + served.failed),
    ]


def said(sent: Sequence[Sent], alone: "dict[str, Measured]", served: "dict[str, Measured]") -> str:
    """How many times as long JSON takes, smallest and largest tensor."""
    parts = []
    for floats in (sent[0].floats, sent[-1].floats):
        text, binary = (one.name for one in sent if one.floats == floats)
        through = alone[text].median(p50) / alone[binary].median(p50)
        whole = served[text].median(p50) / served[binary].median(p50)
        parts.append(f"{floats:,}: {through:.1f} x through Envoy, {whole:.1f} x with the simulator")
    return (
        f"REST takes this many times as long as gRPC, by floats: {'; '.join(parts)}. "
        "The simulator reads JSON in Go and answers with as many floats; the real server reads it otherwise."
    )


PARTS = {"proxies-tensors": Part("REST against gRPC by tensor size", report)}
