"""What a drill is played on: an engine of its own with a stack of four instances, and clients that ask."""

import copy
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from components.front_end_plan import ListenPorts
from drills.records import Request
from images.build import ensure_images
from images.samples import write_sample_models
from ops.daemon import children, processes_with, send
from ops.engine import PrivateEngine
from tests.integration.docker_cli import DockerCli
from tests.integration.drill import Config, Drill, descendants, environment, local_config, wait_until
from tests.pulumi_project import CHECKOUT, Project
from toolchain.tools import Toolchain

Value = TypeVar("Value")

STACK = "drill"
ENVOY_IMAGE = "tf-serving-envoy:1.40.0"
SERVER_IMAGE = "tf-serving-simulator:2.14.1-gpu"
_BASE_MS = 5


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Requests a second over each protocol, and how many clients share them."""

    rest: float = 300
    grpc: float = 150
    rest_clients: int = 12
    grpc_clients: int = 6


@dataclass
class Traffic:
    """Clients that run; `requests` is filled when they have been stopped."""

    since_s: float = field(default_factory=time.monotonic)
    requests: dict[str, list[Request]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    """Further findings, for the report."""

    def of(self, protocol: str) -> list[Request]:
        """What became of the requests over `rest` or `grpc`."""
        return self.requests[protocol]

    @property
    def all(self) -> list[Request]:
        """Those over both."""
        return [request for requests in self.requests.values() for request in requests]


@dataclass(frozen=True)
class Stage(Drill):
    """A deployed stack named `drill` on an engine that nothing else uses."""

    own: PrivateEngine
    base: Config
    """The configuration that every drill begins with."""

    def reset(self) -> None:
        """Bring it back to how every drill begins, after one that went well."""
        self.config.clear()
        self.config.update(copy.deepcopy(self.base))
        self.write()
        self.up()

    @property
    def model(self) -> Path:
        """The folder of the model's versions."""
        return self.folder / "models" / "half_plus_two"

    @property
    def envoy(self) -> str:
        """The front end's container."""
        return f"{self.stack}.local-envoy"

    @property
    def serving(self) -> dict[str, str]:
        """Identity by name of what serves: another one is a restart."""
        return {
            name: identity
            for name, identity in self.engine.ids().items()
            if ("-gpu" in name and not name.endswith("-drain")) or name == self.envoy
        }

    @property
    def folder(self) -> Path:
        """A folder for the files of this stage."""
        return self.project.folder.parent

    def change(self, edit: Callable[[Config, Value], None], value: Value) -> None:
        """Edit the stack file and run `up`, which must succeed."""
        edit(self.config, value)
        self.write()
        self.apply()

    def apply(self) -> None:
        """Run `up`, which must succeed."""
        done = self.project.up(self.stack, "--suppress-outputs")
        assert done.code == 0, done.output

    def container(self, gpu: int) -> str:
        """The container that owns a GPU."""
        return f"{self.stack}.local-gpu{gpu}"

    def process(self, gpu: int) -> int:
        """The server's process, below the container's init."""
        return self._below_init(self.container(gpu))

    def envoys(self) -> list[int]:
        """Processes of Envoys in the front end's container: two while one takes over."""
        return children(self._below_init(self.envoy))

    def _below_init(self, container: str) -> int:
        pid = int(self.engine.run("inspect", "--format", "{{.State.Pid}}", container))
        [process] = children(pid)
        return process

    def wait_healthy(self, *gpus: int, patience_s: float = 60) -> None:
        """Wait until the engine calls these instances healthy."""
        names = {self.container(gpu) for gpu in gpus}

        def healthy() -> bool:
            shown = self.engine.run("ps", "--filter", "health=healthy", "--format", "{{.Names}}")
            return names <= set(shown.split())

        wait_until(healthy, f"{sorted(names)} healthy", patience_s)

    def restart_engine(
        self, *, power_cut: bool = False, before_it_starts: Callable[[], None] = lambda: None
    ) -> None:
        """Stop the engine with all its containers and start it; a power cut gives nothing the time to end."""
        if power_cut:
            shims = processes_with(str(self.own.run_dir / "containerd.sock"))
            below = [pid for shim in shims for pid in descendants(shim)]
            for pid in (self.own.dockerd.pid(), *shims, *below):
                if pid is not None:
                    send(pid, signal.SIGKILL)
        self.own.stop()  # and what a reboot clears: mounts, sockets, bridges
        before_it_starts()
        self.own.start()

    @contextmanager
    def live_restore(self) -> Iterator[PrivateEngine]:
        """The same engine with `live-restore`, whose containers run on without it; afterwards as before."""
        lively = PrivateEngine(self.own.folder, options=["--live-restore=true"])
        self.own.stop()
        lively.start()
        try:
            yield lively
        finally:
            lively.stop()
            self.own.start()

    @contextmanager
    def traffic(
        self,
        rate: Rate,
        headers: tuple[str, ...] = (),
        *,
        at_least: int = 0,
        ca: Path | None = None,
        directly: bool = False,
    ) -> Iterator[Traffic]:
        """Clients over both protocols, from before to after, and until they have sent `at_least` in all.

        With `ca`, certificates that they trust, they ask over TLS. `directly`: at Envoy's own address, where
        clients of other machines are led to; on the loopback a process of the engine stands between.
        """
        both = rate.rest + rate.grpc
        rest, grpc = self._own_ports() if directly else self._published_ports()
        options = {
            "rest": (rest, rate.rest, rate.rest_clients),
            "grpc": (grpc, rate.grpc, rate.grpc_clients),
        }
        more = [*(f"--header={header}" for header in headers), *([f"--ca={ca}"] if ca else [])]
        made = Traffic()
        files = {protocol: self.folder / f"{protocol}-{time.monotonic_ns()}.csv" for protocol in options}
        running = {
            protocol: _client(
                protocol, *option, more, files[protocol], math.ceil(at_least * option[1] / both)
            )
            for protocol, option in options.items()
            if option[1]
        }
        try:
            for process in running.values():
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
            made.since_s = time.monotonic()
            yield made
        finally:
            for process in running.values():
                process.send_signal(signal.SIGTERM)
            for process in running.values():
                process.wait(timeout=600)
        for protocol in running:
            made.requests[protocol] = [Request.of(line) for line in files[protocol].read_text().splitlines()]

    def _published_ports(self) -> tuple[str, str]:
        front_end = self.config["front_end"]
        return f"127.0.0.1:{front_end['rest_port']}", f"127.0.0.1:{front_end['grpc_port']}"

    def _own_ports(self) -> tuple[str, str]:
        template = f'{{{{(index .NetworkSettings.Networks "{self.stack}-front").IPAddress}}}}'
        address, ports = self.engine.run("inspect", "--format", template, self.envoy), ListenPorts()
        return f"{address}:{ports.rest}", f"{address}:{ports.grpc}"


def _client(
    protocol: str, at: str, rate: float, clients: int, more: Sequence[str], out: Path, at_least: int
) -> "subprocess.Popen[str]":
    options = {"at": at, "rate": rate, "clients": clients, "out": out, "at-least": at_least}
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "drills.load", protocol),
            *(f"--{name}={value}" for name, value in options.items()),
            *more,
        ],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def stage(folder: Path, toolchain: Toolchain) -> Iterator[Stage]:
    """Set up, and take away: the stack is up when this yields."""
    folder.mkdir(parents=True)
    own = PrivateEngine(folder / "engine")
    own.start()
    try:
        ensure_images(own.docker_host)
        engine = DockerCli(own.docker_host)
        project = Project(folder, toolchain, environment(own.docker_host))
        config = _config(folder / "models", engine)
        made = Stage(project, engine, STACK, config, own, copy.deepcopy(config))
        made.write()
        made.up()
        try:
            yield made
        finally:
            if engine.names("container"):
                project.destroy(STACK)
    finally:
        own.remove()


def _config(models: Path, engine: DockerCli) -> Config:
    config = local_config(models)
    write_sample_models(models, versions=(1, 2))
    paced = variant(engine, SERVER_IMAGE, "paced", f"SIM_BASE_MS={_BASE_MS}")
    config["images"] = {**config["images"], "server": paced}
    [node], [pool] = config["nodes"], config["pools"]
    # A fifth GPU, and memory for its instance: for what is beside the pool.
    node["memory_mib"] += 1024
    node["gpus"].append({**node["gpus"][3], "index": 4, "uuid": "GPU-00000000-0000-4000-8000-000000000004"})
    pool["batching"]["batch_timeout_micros"] = 1000
    pool["models_folder"] = str(models)
    pool["models"][0] |= {"versions": {"specific": [1]}, "labels": {"stable": 1}}
    # A version that cannot be loaded is given up at once.
    pool["server"] = {"max_num_load_retries": 0, "load_retry_interval_micros": 0}
    return config


def variant(engine: DockerCli, image: str, name: str, *environment: str) -> str:
    """An image with more variables, under a name of its own."""
    repository, _, tag = image.partition(":")
    made = f"{repository}-{name}:{tag}"
    container = engine.run("create", image)
    changes = [f"--change=ENV {variable}" for variable in environment]
    engine.run("commit", *changes, container, made)
    engine.run("rm", container)
    return made
