"""What each thing that our Envoy can do costs, one by one, beside ours as it is by default."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.clients import require
from bench.pairs import Candidate, Measured, compare, pairs, table
from bench.part import Part
from bench.proxies import MANY, ROUNDS, p50, rate
from bench.proxy_processes import BODY, LOGGING_ERRORS, OURS, Proxy, ours
from tests.envoy import stand_ins
from tests.envoy.pools import ONE_POOL, STICKY, SmallPool
from toolchain.tools import Toolchain

_SECONDS = 1


@dataclass(frozen=True, kw_only=True)
class Feature:
    """Settings of the front end, what its clients send, and the pools."""

    settings: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    pools: Sequence[SmallPool] = ONE_POOL


def features() -> dict[str, Feature]:
    """Each by its name; ours as it is comes first."""
    keys = [{"client": "team-b", "key": "key_b"}]
    issuer = {"issuer": stand_ins.ISSUER, "audiences": [stand_ins.AUDIENCE], "keys": [stand_ins.jwk()]}
    return {
        OURS: Feature(),
        "access log of errors alone": Feature(settings=LOGGING_ERRORS),
        "TLS": Feature(settings={"tls": {}}),
        "API keys": Feature(
            settings={"auth": {"api_keys": keys}}, headers={"x-api-key": stand_ins.API_KEYS["key_b"]}
        ),
        "tokens (RS256)": Feature(
            settings={"auth": {"jwt": issuer}}, headers={"authorization": f"Bearer {stand_ins.token()}"}
        ),
        "rate limit": Feature(settings={"rate_limit": {"per_second": 1_000_000}}),
        "users stick": Feature(headers={"x-user-id": "someone"}, pools=STICKY),
        "version by header": Feature(headers={"x-tf-model-version": "1"}),
    }


OVER_GRPC = (OURS, "access log of errors alone", "TLS", "version by header")
"""Those that cost something else over gRPC. There the version is put into the message, by Lua."""


def report(_toolchain: Toolchain) -> Iterator[str]:
    """REST with every feature, then gRPC with those that differ there."""
    require("nginx", "wrk", "h2load")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        proxies: list[Proxy] = []
        for number, (name, feature) in enumerate(features().items()):
            made = ours(Path(folder) / str(number), name, feature.settings, feature.headers, feature.pools)
            proxies.append(stack.enter_context(made)[0])
        over_rest = [proxy.over_rest(MANY, _SECONDS) for proxy in proxies]
        yield from _report("REST", over_rest)
        over_grpc = [proxy.over_grpc(MANY, _SECONDS) for proxy in proxies if proxy.name in OVER_GRPC]
        yield from _report("gRPC", over_grpc)
    yield "`version by header` rewrites the path over REST; over gRPC Lua holds the message and changes it."


def _report(protocol: str, candidates: Sequence[Candidate]) -> Iterator[str]:
    yield f"{protocol}, {MANY} at a time, {len(BODY)} bytes, connections that are kept:"
    yield ""
    found = compare(candidates, ROUNDS)
    head = ("with", "requests/s", "of ours", "CPU, us a request", "more", "p50, ms", "failed")
    yield from table(head, (_row(name, measured, found[OURS]) for name, measured in found.items()))


def _row(name: str, measured: Measured, own: Measured) -> list[str]:
    cpu = measured.cpu or 0
    return [
        name,
        measured.rates.text(".0f"),
        pairs(measured, own, rate).text(),
        f"{cpu:.0f}",
        f"{cpu - (own.cpu or 0):+.0f}",
        f"{measured.median(p50):.2f}",
        str(measured.failed),
    ]


PARTS = {"proxies-features": Part("What each feature of our Envoy costs", report)}
