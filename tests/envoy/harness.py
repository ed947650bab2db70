"""Starts servers and an Envoy before them, on loopback addresses of this run alone, and asks them."""

import http.client
import json
import random
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path

import grpc

from components.front_end_plan import ListenPorts
from components.plan import Endpoint, FrontEndPlan, PoolPlan
from components.server_spec import REST_PORT
from tests.envoy import stand_ins
from tests.envoy.ground import ROOT, Ground, Said, envoy_command, run_script
from tests.envoy.pools import ONE_POOL, SmallPool, front_end

PREDICT = "/tensorflow.serving.PredictionService/Predict"
PATIENCE_S = 30.0


def wait_for(what: str, happens: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Waits until `happens()`; an error of the network counts as not yet."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            if happens():
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"not within {patience_s} s: {what}")


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on.

    Below those that the kernel gives to clients: one of these would be taken while a server is replaced.
    """
    ports: list[int] = []
    for port in random.sample(range(15000, 30000), k=2000):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise AssertionError(f"no {count} free ports between 15000 and 30000")


def on_loopback(plan: FrontEndPlan) -> FrontEndPlan:
    """The plan with its instances at loopback addresses that nothing uses; their ports stay the same."""
    for _ in range(100):
        net = f"127.{random.randint(20, 250)}.{random.randint(0, 250)}"  # noqa: S311 - not a secret
        try:
            socket.create_server((f"{net}.10", REST_PORT)).close()
        except OSError:
            continue
        return replace(plan, pools=tuple(_moved(pool, net) for pool in plan.pools))
    raise AssertionError("no free loopback addresses")


def _moved(pool: PoolPlan, net: str) -> PoolPlan:
    endpoints = (
        replace(endpoint, address=IPv4Address(f"{net}.{IPv4Address(str(endpoint.address)).packed[3]}"))
        for endpoint in pool.endpoints
    )
    parts = tuple(_moved(part, net) for part in pool.parts)
    return replace(pool, endpoints=tuple(endpoints), parts=parts)


@dataclass(frozen=True)
class Answer:
    """What a client got over REST."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def served_by(self) -> str | None:
        return self.headers.get("x-served-by")

    def json(self) -> dict[str, object]:
        value = json.loads(self.body)
        assert isinstance(value, dict)
        return value


def ask(
    address: str,
    port: int,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """One request on a connection of its own; the path goes out as it stands."""
    connection = (
        http.client.HTTPSConnection(address, port, timeout=PATIENCE_S, context=tls)
        if tls
        else http.client.HTTPConnection(address, port, timeout=PATIENCE_S)
    )
    try:
        connection.request(method, path, body=body, headers=dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


Launch = Callable[[Endpoint], subprocess.Popen[bytes]]
Start = Callable[[Ground, Path, Path], AbstractContextManager[subprocess.Popen[bytes]]]
"""Runs an Envoy on a place, with a bootstrap, and its output in a file."""


def launch_misbehaving(endpoint: Endpoint) -> subprocess.Popen[bytes]:
    """The server of `backend.py`."""
    command = [sys.executable, "-m", "tests.envoy.backend", endpoint.name, str(endpoint.address)]
    return subprocess.Popen(command, cwd=ROOT)


@dataclass
class Backend:
    """A server process behind Envoy."""

    endpoint: Endpoint
    launch: Launch
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return self.endpoint.name

    def start(self) -> None:
        self.process = self.launch(self.endpoint)

    def is_up(self) -> bool:
        """It answers, whatever it says."""
        return self.ask("GET", "/seen").status > 0

    def ask(self, method: str, path: str, body: bytes | None = None) -> Answer:
        return ask(str(self.endpoint.address), REST_PORT, method, path, body=body)

    def behave(self, changes: Mapping[str, object]) -> None:
        assert self.ask("POST", "/control", json.dumps(changes).encode()).status == 200

    def seen(self) -> list[str]:
        seen = json.loads(self.ask("GET", "/seen").body)
        self.behave({"seen": []})
        return [str(request) for request in seen]

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@dataclass
class Site:
    """An Envoy and the servers behind it."""

    plan: FrontEndPlan
    ground: Ground
    log: Path
    backends: dict[str, Backend]
    pid: int
    """Envoy's."""

    def rest(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        tls = ssl.create_default_context(cadata=stand_ins.certificate()[0]) if self.plan.spec.tls else None
        return ask("127.0.0.1", self.plan.spec.rest_port, method, path, body=body, headers=headers, tls=tls)

    def predict(self, model: str = "resnet") -> Answer:
        return self.rest("POST", f"/v1/models/{model}:predict", b"{}")

    def metrics(self, path: str) -> Answer:
        return ask("127.0.0.1", self.plan.spec.metrics_port, "GET", path)

    def admin(self, path: str) -> Answer:
        return ask("127.0.0.1", self.ground.admin_port, "GET", path)

    @contextmanager
    def channel(self) -> Iterator[grpc.Channel]:
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        target = f"127.0.0.1:{self.plan.spec.grpc_port}"
        if self.plan.spec.tls:
            trusted = grpc.ssl_channel_credentials(stand_ins.certificate()[0].encode())
            made = grpc.secure_channel(target, trusted, options=options)
        else:
            made = grpc.insecure_channel(target, options=options)
        with made as channel:
            yield channel

    def grpc(
        self, path: str = PREDICT, message: bytes = b"", metadata: Sequence[tuple[str, str]] = ()
    ) -> tuple[bytes, str | None]:
        """The answer and who gave it; raises RpcError."""
        with self.channel() as channel:
            return call_grpc(channel, path, message, metadata)

    def stat(self, name: str) -> int:
        """A counter or gauge of Envoy."""
        text = self.admin(f"/stats?filter=^{name}$").body.decode()
        return int(text.rpartition(": ")[2] or 0)

    def healthy(self, cluster: str) -> int:
        return self.stat(f"cluster.{cluster}.membership_healthy")

    @staticmethod
    def clusters_of(plan: FrontEndPlan) -> list[str]:
        """The clusters that an Envoy with these files has."""
        pools = [f"{protocol}-{pool.name}" for pool in plan.pools for protocol in ("rest", "grpc")]
        return [*pools, *(f"metrics-{e.name}" for pool in plan.pools for e in pool.endpoints), "admin"]

    def settled(self) -> None:
        """Every instance is well, seen as well, and not ejected."""

        def all_well() -> bool:
            clusters = json.loads(self.admin("/clusters?format=json").body)["cluster_statuses"]
            hosts = [host for cluster in clusters for host in cluster.get("host_statuses", [])]
            return all(
                host["health_status"].get("eds_health_status") == "HEALTHY"
                and len(host["health_status"]) == 1
                for host in hosts
            )

        wait_for("every instance healthy", all_well, 60)

    def publish(self, plan: FrontEndPlan, *edits: tuple[str, str, str], patience_s: int = 30) -> Said:
        """Gives the running Envoy the files of a plan; `edits` are replacements: a file, what, by what."""
        new = Path(tempfile.mkdtemp(dir=self.log.parent))
        self.ground.write(plan, new)
        for name, old, wanted in edits:
            _, _, text = (new / name).read_text().partition("\n")
            assert old in text
            version = f'version_info: "{new.name}"\n'
            (new / name).write_text(version + text.replace(old, wanted))
        where = (new, self.ground.folder, "127.0.0.1", self.ground.status_port)
        return run_script("apply", *where, work=new / "work", patience_s=patience_s)

    def log_lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


def call_grpc(
    channel: grpc.Channel,
    path: str = PREDICT,
    message: bytes = b"",
    metadata: Sequence[tuple[str, str]] = (),
    timeout_s: float = PATIENCE_S,
) -> tuple[bytes, str | None]:
    """The answer and who gave it; raises RpcError."""
    call = channel.unary_unary(path, request_serializer=None, response_deserializer=None)
    answer, details = call.with_call(message, metadata=tuple(metadata), timeout=timeout_s)
    served_by = dict(details.initial_metadata()).get("x-served-by")
    return bytes(answer), None if served_by is None else str(served_by)


@contextmanager
def envoy_process(
    binary: Path, config: Path, log: Path, *, prefix: Sequence[str] = (), workers: int = 2
) -> Iterator[subprocess.Popen[bytes]]:
    """A running Envoy. Start it from the main thread: it ends with the thread that started it."""
    command = [*prefix, *envoy_command(binary, config, workers=workers)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ground_below(folder: Path) -> Ground:
    """A place in a folder, on ports that are free."""
    (folder / "config").mkdir()
    return Ground(folder / "config", *free_ports(2))


@contextmanager
def site(
    binary: Path,
    folder: Path,
    pools: Sequence[SmallPool] = ONE_POOL,
    settings: Mapping[str, object] | None = None,
    launch: Launch = launch_misbehaving,
    *,
    prefix: Sequence[str] = (),
    workers: int = 2,
    start: Start | None = None,
) -> Iterator[Site]:
    """Servers for every instance of `pools` and an Envoy before them, all healthy; `start` runs that one."""
    rest, grpc_port, metrics = free_ports(3)
    ground = ground_below(folder)
    ports = {"rest_port": rest, "grpc_port": grpc_port, "metrics_port": metrics}
    plan = on_loopback(front_end(pools, settings={**ports, **(settings or {})}))
    # No container is around it: what is published is where it listens.
    plan = replace(plan, listens=ListenPorts(rest=rest, grpc=grpc_port, metrics=metrics))
    backends = {e.name: Backend(e, launch) for pool in plan.pools for e in pool.endpoints}
    log = folder / "envoy.log"
    config = ground.write(plan, ground.folder)
    try:
        for backend in backends.values():
            backend.start()
        for backend in backends.values():
            wait_for(f"{backend.name} answers", backend.is_up)
        with (
            start(ground, config, log)
            if start
            else envoy_process(binary, config, log, prefix=prefix, workers=workers)
        ) as process:
            made = Site(plan, ground, log, backends, process.pid)

            def ready() -> bool:
                assert process.poll() is None, log.read_text()
                return made.rest("GET", "/healthz").status == 200

            wait_for("Envoy is ready", ready)
            made.settled()
            yield made
    finally:
        for backend in backends.values():
            backend.kill()
