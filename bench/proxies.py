"""Envoy as we configure it beside a minimal Envoy, nginx and HAProxy: same backends, same run, same cores.

The four backends and the client share core 0, the proxy under test has core 1 and one worker. The backends
are nginx processes that answer at once: what is measured is the proxy. Rounds are interleaved, so that what
else the machine does meets all of them alike; figures are medians over rounds, ratios are of pairs.
"""

import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.clients import Load, find, over_grpc, over_rest, require
from bench.part import Part
from components.plan import GRPC_PORT, REST_PORT, Endpoint
from images.envoy import envoy_binary
from tests.envoy.harness import PREDICT, ask, envoy_process, free_ports, site, wait_for
from toolchain.tools import Toolchain

ROUNDS = 10
_SECONDS = 2.0
_BACKEND_CORE, _PROXY_CORE = ("taskset", "-c", "0"), ("taskset", "-c", "1")
_MODEL = "resnet"
_BODY = json.dumps({"instances": [[0.5] * 200]})  # about 1 KB
_MINIMAL = "Envoy, one route"
_OURS = "Envoy, ours"


@dataclass(frozen=True)
class Proxy:
    """A proxy that runs: where it answers over REST and over gRPC."""

    name: str
    rest_port: int
    grpc_port: int


def report(_toolchain: Toolchain) -> Iterator[str]:
    """REST with 1 and 32 clients, then gRPC, each proxy against the minimal Envoy."""
    require("nginx", "haproxy", "wrk", "h2load")
    with tempfile.TemporaryDirectory() as folder, _proxies(Path(folder)) as (proxies, backend):
        for protocol in ("REST", "gRPC"):
            for clients in (1, 32):
                yield f"{protocol}, {clients} at a time, {len(_BODY)} bytes:"
                yield ""
                yield from _table([backend, *proxies], protocol, clients)
                yield ""


def _table(proxies: Sequence[Proxy], protocol: str, clients: int) -> Iterator[str]:
    rounds: list[dict[str, Load]] = [
        {proxy.name: _load(proxy, protocol, clients) for proxy in proxies} for _ in range(ROUNDS)
    ]
    yield "| proxy | requests/s (range) | of the minimal Envoy | p50, ms | p99, ms | added p50 | failed |"
    yield "|---|---|---|---|---|---|---|"
    direct = proxies[0].name
    for proxy in proxies:
        loads = [found[proxy.name] for found in rounds]
        rates = [load.rate for load in loads]
        ratio = statistics.median(found[proxy.name].rate / found[_MINIMAL].rate for found in rounds)
        added = statistics.median(found[proxy.name].p50_ms - found[direct].p50_ms for found in rounds)
        yield (
            f"| {proxy.name} | {statistics.median(rates):.0f} ({min(rates):.0f} to {max(rates):.0f}) "
            f"| {ratio:.2f} | {statistics.median(load.p50_ms for load in loads):.2f} "
            f"| {statistics.median(load.p99_ms for load in loads):.2f} "
            f"| {added:.2f} | {sum(load.failed for load in loads)} |"
        )


def _load(proxy: Proxy, protocol: str, clients: int) -> Load:
    if protocol == "REST":
        url = f"http://127.0.0.1:{proxy.rest_port}/v1/models/{_MODEL}:predict"
        return over_rest(url, _BODY, clients=clients, seconds=_SECONDS, prefix=_BACKEND_CORE)
    address = f"127.0.0.1:{proxy.grpc_port}"
    message = b"\x0a\x08\x0a\x06resnet" + _padding(1000)
    return over_grpc(address, PREDICT, message, clients=clients, seconds=_SECONDS, prefix=_BACKEND_CORE)


def _padding(size: int) -> bytes:
    """An unknown field of a message that holds `size` bytes, below 16 KiB."""
    return b"\xfa\x3f" + bytes([size & 0x7F | 0x80, size >> 7]) + b"x" * size


@contextmanager
def _proxies(folder: Path) -> Iterator[tuple[list[Proxy], Proxy]]:
    with ExitStack() as stack:
        launch = partial(_nginx_backend, folder)
        ours = stack.enter_context(site(envoy_binary(), folder, launch=launch, prefix=_PROXY_CORE, workers=1))
        endpoints = [endpoint for pool in ours.plan.pools for endpoint in pool.endpoints]
        proxies = [Proxy(_OURS, ours.plan.spec.rest_port, ours.plan.spec.grpc_port)]
        for name, start in ((_MINIMAL, _minimal_envoy), ("nginx", _nginx), ("HAProxy", _haproxy)):
            rest_port, grpc_port = free_ports(2)
            stack.enter_context(start(folder, endpoints, rest_port, grpc_port))
            wait_for(f"{name} answers", lambda port=rest_port: _answers(port))  # type: ignore[misc]
            proxies.append(Proxy(name, rest_port, grpc_port))
        first_rest, first_grpc = free_ports(2)
        direct = stack.enter_context(
            _process(_nginx_command(folder, "direct", _backend(first_rest, first_grpc)))
        )
        wait_for("the backend answers", lambda: direct.poll() is None and _answers(first_rest))
        yield proxies, Proxy("no proxy", first_rest, first_grpc)


def _answers(port: int) -> bool:
    return ask("127.0.0.1", port, "POST", f"/v1/models/{_MODEL}:predict", body=b"{}").status == 200


@contextmanager
def _process(command: Sequence[str]) -> "Iterator[subprocess.Popen[bytes]]":
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)


def _nginx_command(folder: Path, name: str, servers: str, prefix: Sequence[str] = _BACKEND_CORE) -> list[str]:
    own = folder / name
    own.mkdir()
    config = own / "nginx.conf"
    temporary = "".join(
        f"  {kind}_temp_path {own};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(
        f"daemon off;\npid {own}/pid;\nerror_log {own}/error.log;\nworker_processes 1;\n"
        f"events {{ worker_connections 4096; }}\nhttp {{\n{temporary}  access_log off;\n"
        f"  keepalive_requests 100000000;\n{servers}}}\n"
    )
    return [*prefix, str(find("nginx")), "-c", str(config), "-p", str(own)]


def _backend(rest_port: int, grpc_port: int, address: str = "127.0.0.1") -> str:
    state = json.dumps({"model_version_status": [{"version": "1", "state": "AVAILABLE"}]})
    return (
        f"  server {{ listen {address}:{rest_port};\n"
        f"    location = /v1/models/{_MODEL} {{ return 200 '{state}'; }}\n"
        "    location / { return 200 '{\"predictions\": [2.5]}'; }\n  }\n"
        f"  server {{ listen {address}:{grpc_port} http2;\n"
        "    location / { default_type application/grpc; add_header grpc-status 0; return 200 ''; }\n  }\n"
    )


def _nginx_backend(folder: Path, endpoint: Endpoint) -> "subprocess.Popen[bytes]":
    servers = _backend(REST_PORT, GRPC_PORT, str(endpoint.address))
    return subprocess.Popen(_nginx_command(folder, endpoint.name, servers))


@contextmanager
def _minimal_envoy(
    folder: Path, endpoints: Sequence[Endpoint], rest_port: int, grpc_port: int
) -> "Iterator[subprocess.Popen[bytes]]":
    config = folder / "minimal.json"
    resources = {
        "listeners": [_plain_listener("rest", rest_port), _plain_listener("grpc", grpc_port)],
        "clusters": [
            _plain_cluster("rest", endpoints, REST_PORT, {}),
            _plain_cluster("grpc", endpoints, GRPC_PORT, _HTTP2),
        ],
    }
    config.write_text(json.dumps({"static_resources": resources}))
    with envoy_process(
        envoy_binary(), config, folder / "minimal.log", prefix=_PROXY_CORE, workers=1
    ) as process:
        yield process


_HTTP2 = {
    "typed_extension_protocol_options": {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
    }
}


def _plain_listener(cluster: str, port: int) -> dict[str, object]:
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
        ".HttpConnectionManager",
        "stat_prefix": cluster,
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": cluster}}],
                }
            ]
        },
        "http_filters": [
            {
                "name": "router",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
                },
            }
        ],
    }
    return {
        "name": cluster,
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }


def _plain_cluster(
    name: str, endpoints: Sequence[Endpoint], port: int, more: Mapping[str, object]
) -> dict[str, object]:
    addresses = [
        {"endpoint": {"address": {"socket_address": {"address": str(e.address), "port_value": port}}}}
        for e in endpoints
    ]
    return {
        "name": name,
        "type": "STATIC",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": addresses}]},
        **more,
    }


@contextmanager
def _nginx(
    folder: Path, endpoints: Sequence[Endpoint], rest_port: int, grpc_port: int
) -> "Iterator[subprocess.Popen[bytes]]":
    def upstream(name: str, port: int) -> str:
        servers = " ".join(f"server {endpoint.address}:{port};" for endpoint in endpoints)
        return f"  upstream {name} {{ least_conn; {servers} keepalive 64; keepalive_requests 100000000; }}\n"

    servers = (
        upstream("rest", REST_PORT)
        + upstream("grpc", GRPC_PORT)
        + f"  server {{ listen 127.0.0.1:{rest_port}; location / {{ proxy_pass http://rest;\n"
        + "    proxy_http_version 1.1; proxy_set_header Connection ''; } }\n"
        + f"  server {{ listen 127.0.0.1:{grpc_port} http2; location / {{ grpc_pass grpc://grpc; }} }}\n"
    )
    with _process(_nginx_command(folder, "nginx", servers, _PROXY_CORE)) as process:
        yield process


@contextmanager
def _haproxy(
    folder: Path, endpoints: Sequence[Endpoint], rest_port: int, grpc_port: int
) -> "Iterator[subprocess.Popen[bytes]]":
    def backend(name: str, port: int, options: str) -> str:
        servers = "".join(f"  server {e.name} {e.address}:{port}{options}\n" for e in endpoints)
        return f"backend {name}\n  balance leastconn\n{servers}"

    config = folder / "haproxy.cfg"
    config.write_text(
        "global\n  nbthread 1\n  maxconn 4096\ndefaults\n  mode http\n  timeout connect 5s\n"
        "  timeout client 60s\n  timeout server 60s\n  http-reuse always\n"
        f"frontend rest_in\n  bind 127.0.0.1:{rest_port}\n  default_backend rest\n"
        f"frontend grpc_in\n  bind 127.0.0.1:{grpc_port} proto h2\n  default_backend grpc\n"
        + backend("rest", REST_PORT, "")
        + backend("grpc", GRPC_PORT, " proto h2")
    )
    with _process([*_PROXY_CORE, str(find("haproxy")), "-f", str(config), "-db"]) as process:
        yield process


PARTS = {"proxies": Part("Envoy beside a minimal Envoy, nginx and HAProxy", report)}
