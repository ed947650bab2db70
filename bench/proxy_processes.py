"""The proxies that are measured, over the same four servers; the proxies have a core of their own.

Servers and client share core 0, each proxy has core 1 and one worker. The servers are nginx processes that
answer at once: what is measured is the proxy.
"""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.clients import Load, find, over_grpc, over_rest
from bench.pairs import Candidate
from components.plan import Endpoint
from components.server_spec import GRPC_PORT, REST_PORT
from images.envoy import envoy_binary
from tests.envoy.harness import PREDICT, ask, envoy_process, free_ports, site, wait_for
from tests.envoy.pools import ONE_POOL, SmallPool

BACKEND_CORE, PROXY_CORE = ("taskset", "-c", "0"), ("taskset", "-c", "1")
MODEL = "resnet"
BODY = json.dumps({"instances": [[0.5] * 200]})  # about 1 KB
MINIMAL = "Envoy, one route"
OURS = "Envoy, ours"
QUIET = "ours, errors alone logged"
LOGGING_ERRORS: Mapping[str, object] = {"access_log": {"sample_percent": 0}}
HAPROXY = "HAProxy"
DIRECT = "no proxy"


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """A proxy that runs: where it answers, over REST and over gRPC, and what its clients must send."""

    name: str
    rest_port: int
    grpc_port: int
    pid: int | None
    scheme: str = "http"
    headers: Mapping[str, str] = field(default_factory=dict)

    def over_rest(self, clients: int, seconds: float, body: str = BODY) -> Candidate:
        """Its load over REST."""
        url = f"{self.scheme}://127.0.0.1:{self.rest_port}/v1/models/{MODEL}:predict"

        def load() -> Load:
            return over_rest(
                url, body, clients=clients, seconds=seconds, headers=self.headers, prefix=BACKEND_CORE
            )

        return Candidate(self.name, load, self.pid)

    def over_grpc(self, clients: int, seconds: float, message: bytes | None = None) -> Candidate:
        """Its load over gRPC, with as many bytes a request."""
        url = f"{self.scheme}://127.0.0.1:{self.grpc_port}{PREDICT}"
        sent = b"\x0a\x08\x0a\x06resnet" + _padding(1000) if message is None else message

        def load() -> Load:
            return over_grpc(
                url, sent, clients=clients, seconds=seconds, headers=self.headers, prefix=BACKEND_CORE
            )

        return Candidate(self.name, load, self.pid)


def _padding(size: int) -> bytes:
    """An unknown field of a message that holds `size` bytes, below 16 KiB."""
    return b"\xfa\x3f" + bytes([size & 0x7F | 0x80, size >> 7]) + b"x" * size


@contextmanager
def ours(
    folder: Path,
    name: str = OURS,
    settings: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
    pools: Sequence[SmallPool] = ONE_POOL,
) -> Iterator[tuple[Proxy, Sequence[Endpoint]]]:
    """Envoy as this program configures it with these settings of the front end; and its servers."""
    folder.mkdir()
    launch = partial(_nginx_backend, folder)
    with site(
        envoy_binary(), folder, pools, settings, launch=launch, prefix=PROXY_CORE, workers=1
    ) as running:
        spec = running.plan.spec
        proxy = Proxy(
            name=name,
            rest_port=spec.rest_port,
            grpc_port=spec.grpc_port,
            pid=running.pid,
            scheme="https" if spec.tls else "http",
            headers=headers or {},
        )
        yield proxy, [endpoint for pool in running.plan.pools for endpoint in pool.endpoints]


@contextmanager
def every_proxy(folder: Path) -> Iterator[list[Proxy]]:
    """No proxy first, then ours, ours that logs errors alone, the minimal Envoy, nginx, HAProxy."""
    with ExitStack() as stack:
        own, endpoints = stack.enter_context(ours(folder / "ours"))
        quiet, _ = stack.enter_context(ours(folder / "quiet", QUIET, LOGGING_ERRORS))
        ports = free_ports(2)
        direct = _process(_nginx_command(folder, "direct", _backend(ports[0], ports[1])))
        proxies = [_started(stack, DIRECT, direct, ports), own, quiet]
        others: Sequence[tuple[str, _Start]] = (
            (MINIMAL, _minimal_envoy),
            ("nginx", _nginx),
            (HAPROXY, _haproxy),
        )
        for name, start in others:
            ports = free_ports(2)
            proxies.append(_started(stack, name, start(folder, endpoints, *ports), ports))
        yield proxies


_Running = AbstractContextManager["subprocess.Popen[bytes]"]
_Start = Callable[[Path, Sequence[Endpoint], int, int], _Running]


def _started(stack: ExitStack, name: str, running: _Running, ports: Sequence[int]) -> Proxy:
    process = stack.enter_context(running)
    rest_port, grpc_port = ports
    wait_for(f"{name} answers", lambda: process.poll() is None and _answers(rest_port))
    pid = None if name == DIRECT else process.pid
    return Proxy(name=name, rest_port=rest_port, grpc_port=grpc_port, pid=pid)


def _answers(port: int) -> bool:
    return ask("127.0.0.1", port, "POST", f"/v1/models/{MODEL}:predict", body=b"{}").status == 200


@contextmanager
def _process(command: Sequence[str]) -> "Iterator[subprocess.Popen[bytes]]":
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)


def _nginx_command(folder: Path, name: str, servers: str, prefix: Sequence[str] = BACKEND_CORE) -> list[str]:
    own = folder / name
    own.mkdir()
    config = own / "nginx.conf"
    temporary = "".join(
        f"  {kind}_temp_path {own};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(
        # One process: workers would outlive a master that is killed.
        f"daemon off;\nmaster_process off;\npid {own}/pid;\nerror_log {own}/error.log;\n"
        f"events {{ worker_connections 4096; }}\nhttp {{\n{temporary}  access_log off;\n"
        f"  keepalive_requests 100000000;\n  client_max_body_size 0;\n{servers}}}\n"
    )
    return [*prefix, str(find("nginx")), "-c", str(config), "-p", str(own)]


def _backend(rest_port: int, grpc_port: int, address: str = "127.0.0.1") -> str:
    state = json.dumps({"model_version_status": [{"version": "1", "state": "AVAILABLE"}]})
    return (
        f"  server {{ listen {address}:{rest_port};\n"
        f"    location = /v1/models/{MODEL} {{ return 200 '{state}'; }}\n"
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
        envoy_binary(), config, folder / "minimal.log", prefix=PROXY_CORE, workers=1
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
    with _process(_nginx_command(folder, "nginx", servers, PROXY_CORE)) as process:
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
    with _process([*PROXY_CORE, str(find("haproxy")), "-f", str(config), "-db"]) as process:
        yield process
