"""A container that a stack runs, on whichever target: what rules look at."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from pack import images
from pack.reading import Unread
from pack.resource import Resource

LABEL = "tf-serving."
Role = Literal["server", "front-end", "publisher", "other"]
_SERVER = "tensorflow_model_server"
_ONE_SHOTS = ("publisher", "acceptance", "drain")
"""Roles of containers that do one thing and end."""
_SERVER_FLAGS = ("model_config_file", "model_base_path", "model_name", "rest_api_port")


@dataclass(frozen=True, kw_only=True)
class GpuRequest:
    """One way in which a container asks for GPUs: `ids` (indices, UUIDs, `all`), or a `count` of any.

    `path` is the property, or the variable, that says it.
    """

    path: str
    ids: tuple[str, ...] = ()
    count: int | None = None


@dataclass(frozen=True, kw_only=True)
class Port:
    """A published port; `external` 0 is any free one, `address` empty is every address."""

    path: str
    internal: int
    external: int
    address: str
    protocol: str = "tcp"


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A folder in a container; `source` is a path of the node, or the name of a volume or of a ConfigMap."""

    path: str
    kind: Literal["bind", "volume", "tmpfs", "config", "other"]
    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network that a container joins."""

    name: str
    address: str | None


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A health check; times in seconds, None where the engine's own hold."""

    command: tuple[str, ...]
    http_path: str | None = None
    interval_s: float | None = None
    timeout_s: float | None = None
    start_period_s: float | None = None
    retries: int | None = None


@dataclass(frozen=True, kw_only=True)
class Security:
    """What a container may do; None where its program does not say."""

    privileged: bool = False
    host_network: bool = False
    host_pid: bool = False
    host_ipc: bool = False
    host_users: str | None = None
    """What makes root inside it root on its node, where the node would keep the two apart."""
    joined: Mapping[str, str] = field(default_factory=dict)
    """Namespaces of another container, by kind: `network`, `pid`, `ipc`."""
    unconfined: tuple[str, ...] = ()
    """What takes away the confinement that a container has by default: where, and the value."""
    user: str | None = None
    read_only_root: bool = False
    no_new_privileges: bool = False
    capabilities_added: tuple[str, ...] = ()
    capabilities_dropped: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Host memory in MiB and CPUs; None where there is no limit."""

    memory_mib: float | None = None
    memory_request_mib: float | None = None
    memory_swap_mib: float | None = None
    shm_mib: float | None = None
    cpu_set: str | None = None
    cpus: float | None = None


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One container: of `docker:index/container:Container`, or of a pod template.

    `unread` names, by field of this view, what is unknown or odd; the fields hold what could be read.
    `machine` tells Docker hosts apart (None on Kubernetes), `props` are the container's own properties.
    """

    target: Literal["docker", "kubernetes"]
    resource: Resource
    name: str
    machine: str | None
    props: Mapping[str, object]
    image: str | None
    entrypoint: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[GpuRequest, ...] = ()
    runtime: str | None = None
    limits: Limits = Limits()
    ports: tuple[Port, ...] = ()
    publishes_all_ports: bool = False
    mounts: tuple[Mount, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """Text that is put into the container, by path."""
    networks: tuple[Network, ...] = ()
    security: Security = Security()
    probe: Probe | None = None
    startup_probe: Probe | None = None
    liveness_probe: Probe | None = None
    restart: str | None = None
    waits: bool | None = None
    """Whether `up` waits until it is healthy, for at most `wait_timeout_s`."""
    wait_timeout_s: float | None = None
    stop_timeout_s: float | None = None
    stop_signal: str | None = None
    lingers: bool | None = None
    """Whether a pod's container has a preStop, which holds the signal to end back; None on Docker."""
    removal_grace_s: float | None = None
    """How long the Docker provider waits before it kills what it removes; unset, not at all."""
    has_init: bool | None = None
    replicas: int = 1
    init_container: bool = False
    node_selector: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, tuple[Unread, ...]] = field(default_factory=dict)

    @property
    def urn(self) -> str:
        """The resource that it belongs to."""
        return self.resource.urn

    def label(self, name: str) -> str | None:
        """One of the labels that this project's containers carry: `label("pool")`."""
        return self.labels.get(f"{LABEL}{name}")

    def says(self, name: str) -> bool:
        """Whether a label gives something up by name: `says("sharing")`."""
        return self.label(name) == "true"

    def is_exempt_from(self, rule: str) -> bool:
        """Whether its label `tf-serving.exempt` names a rule. A model server never is."""
        listed = (self.label("exempt") or "").replace(",", " ").split()
        return rule in listed and self.role != "server"

    @cached_property
    def command(self) -> tuple[str, ...]:
        """Entrypoint and arguments as one command line."""
        return (*self.entrypoint, *self.arguments)

    def flags(self) -> Iterator[tuple[str, str | None]]:
        """Each `--name=value` (value None where there is no `=`), in order; the server takes the last."""
        for word in self.command:
            if word.startswith("-") and word.strip("-"):
                name, equals, value = word.lstrip("-").partition("=")
                yield name, value if equals else None

    def flag(self, name: str) -> str | None:
        """The value of a flag; the last one, as in the server."""
        return dict(self.flags()).get(name)

    @cached_property
    def role(self) -> Role:
        """What it does, by what it runs; labels count where that leaves it open."""
        if self._runs_a_server:
            return "publisher" if self._is_one_shot else "server"
        said = self.label("role")
        if self._runs_envoy or said == "front-end":
            return "publisher" if said in _ONE_SHOTS else "front-end"
        return "publisher" if said in _ONE_SHOTS else "other"

    @property
    def is_server(self) -> bool:
        """Whether it is a TensorFlow model server."""
        return self.role == "server"

    @cached_property
    def _runs_a_server(self) -> bool:
        if any(word.rpartition("/")[2] == _SERVER for word in self.command):
            return True
        if any(name in _SERVER_FLAGS for name, _ in self.flags()):
            return True
        # An init container has its pod's labels, whatever it does itself.
        labelled = self.label("role") == "instance" and not self.init_container
        return images.is_server(self.image or "") or labelled

    @cached_property
    def _is_one_shot(self) -> bool:
        """Whether the server's image only lends its shell: the entrypoint is another program's."""
        named = self.label("role") in _ONE_SHOTS
        program = self.entrypoint[0].rpartition("/")[2] if self.entrypoint else ""
        starts_one = any(name in word for word in self.command for name in (_SERVER, "tf_serving_entrypoint"))
        return named and program in ("bash", "sh") and not starts_one and not self.gpus

    @cached_property
    def _runs_envoy(self) -> bool:
        program = self.entrypoint[0].rpartition("/")[2] if self.entrypoint else ""
        return program == "envoy" or images.is_envoy(self.image or "")
