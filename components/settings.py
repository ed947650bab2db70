"""What a stack file may say: strict, frozen models with the rules that hold inside one of them.

Rules across models are in `rules.py`; `stack_file.py` loads.
"""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from components.errors import Problem, raise_if_any
from components.types import (
    CpuSet,
    Driver,
    Endpoint,
    GpuId,
    HostName,
    ImageReference,
    Label,
    ModelName,
    ModelPath,
    ModelVersion,
    Port,
    Slug,
    parse_cpus,
)

# Those of RFC 1918: what the standard library calls private holds the loopback and link-local ones as well.
_PRIVATE_NETWORKS = tuple(IPv4Network(net) for net in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))


class Model(BaseModel):
    """Base of every settings model: frozen, nothing coerced, and a key that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    def _rules(self) -> Iterator[Problem]:
        """Findings of the rules that hold inside this model: one method a rule, named for it."""
        yield from ()

    @model_validator(mode="after")
    def _every_rule_holds(self) -> Self:
        # One validator for all rules: pydantic stops at the first that raises, and all findings are wanted.
        raise_if_any(self._rules())
        return self


def _repeated(path: str, key: str, values: Sequence[object]) -> Iterator[Problem]:
    for position, value in enumerate(values):
        if value in values[:position]:
            suffix = f".{key}" if key else ""
            yield Problem(
                f"{path}[{position}]{suffix}", f"is also {path}[{values.index(value)}]{suffix}", value
            )


class Gpu(Model):
    """One GPU of a node: a slot that one instance owns."""

    index: Annotated[int, Field(ge=0, le=15)]
    """The number `nvidia-smi` prints; names the slot."""
    uuid: GpuId
    """What pins an instance: indices move when a card is lost, UUIDs do not."""
    numa_node: Annotated[int, Field(ge=0, le=7)] = 0
    """NUMA node of the GPU (`nvidia-smi topo -m`). Memory follows the CPUs: it is taken near them."""
    cpus: CpuSet | None = None
    """CPUs beside the GPU, for its instance alone, such as `0-15,64-79`. Unset: no pinning."""


class Docker(Model):
    """How a node's Docker Engine is reached."""

    endpoint: Endpoint
    """`ssh://user@host[:port]`, `unix:///path`, or `default`: the engine that `docker` itself reaches."""
    ssh_options: tuple[str, ...] = ()
    """Options for the ssh program, such as `[-o, StrictHostKeyChecking=yes]`."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._ssh_options_need_ssh()

    def _ssh_options_need_ssh(self) -> Iterator[Problem]:
        """Options for ssh mean nothing to an endpoint that is not reached by ssh."""
        if self.ssh_options and not self.endpoint.startswith("ssh://"):
            yield Problem("ssh_options", f"only for ssh:// endpoints, not {self.endpoint}")


class Node(Model):
    """A machine with GPUs and a Docker Engine."""

    name: Slug
    address: HostName
    """What clients use to reach this node's front end; it stands in the URLs of the outputs."""
    docker: Docker
    driver: Driver | None = None
    """NVIDIA driver on the node. Unset: no GPU driver to check (simulated GPUs)."""
    memory_mib: Annotated[int, Field(ge=1024)]
    """RAM of the node in MiB; what its instances may use together stays below it."""
    subnet: IPv4Network
    """Private network of the containers, /24 or larger: instances in the lower half, Envoy in the upper."""
    gpus: Annotated[tuple[Gpu, ...], Field(min_length=1, max_length=16)]
    share_cpus: bool = False
    """Let slots name the same CPUs: for machines with fewer CPUs than slots."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._gpus_are_told_apart()
        yield from self._cpus_are_not_shared()
        yield from self._subnet_is_private_and_large_enough()

    def _gpus_are_told_apart(self) -> Iterator[Problem]:
        """Each index and each UUID stands once."""
        yield from _repeated("gpus", "index", [gpu.index for gpu in self.gpus])
        yield from _repeated("gpus", "uuid", [gpu.uuid for gpu in self.gpus])

    def _cpus_are_not_shared(self) -> Iterator[Problem]:
        """Two servers on the same CPUs each size their thread pools as if alone."""
        if self.share_cpus:
            return
        owner: dict[int, int] = {}
        for position, gpu in enumerate(self.gpus):
            cpus = parse_cpus(gpu.cpus) if gpu.cpus else frozenset()
            rivals = sorted({owner[cpu] for cpu in cpus if cpu in owner})
            if rivals:
                names = ", ".join(f"gpus[{rival}]" for rival in rivals)
                yield Problem(
                    f"gpus[{position}].cpus",
                    f"overlaps {names}; give each slot its own CPUs, or set share_cpus: true",
                    gpu.cpus,
                )
            owner.update(dict.fromkeys(cpus - owner.keys(), position))

    def _subnet_is_private_and_large_enough(self) -> Iterator[Problem]:
        """Containers get fixed addresses in it, so it must be the node's own."""
        private = any(self.subnet.subnet_of(network) for network in _PRIVATE_NETWORKS)
        if not private or self.subnet.prefixlen > 24:
            yield Problem("subnet", "a private IPv4 network of /24 or larger", str(self.subnet))


class Images(Model):
    """Container images; in prod with their digest."""

    server: ImageReference
    """TensorFlow Serving; the tag names its version (`tensorflow/serving:2.14.1-gpu`)."""
    envoy: ImageReference


class VersionPolicy(Model):
    """Which versions of a model a server keeps loaded: exactly one of the three."""

    latest: Annotated[int, Field(ge=1, le=100)] | None = None
    """The newest n."""
    all: Literal[True] | None = None
    """Every version in the folder."""
    specific: Annotated[tuple[ModelVersion, ...], Field(min_length=1)] | None = None
    """These versions."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._exactly_one_is_given()
        yield from _repeated("specific", "", list(self.specific or ()))

    def _exactly_one_is_given(self) -> Iterator[Problem]:
        """The server's policy is a oneof: two at once do not parse there."""
        if len(self.model_dump(exclude_none=True)) != 1:
            yield Problem("", "give exactly one of latest: <n>, all: true, specific: [<version>, …]")


class ServedModel(Model):
    """One model of a pool."""

    name: ModelName
    path: ModelPath
    """Folder on the node that holds the version folders (`1/`, `2/`), mounted read-only."""
    versions: VersionPolicy = VersionPolicy(latest=1)
    labels: Mapping[Label, ModelVersion] = {}
    """Names for versions, as in `/v1/models/<model>/labels/<label>`."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._labels_name_versions_that_are_kept()

    def _labels_name_versions_that_are_kept(self) -> Iterator[Problem]:
        """A label on a version that the policy drops answers NOT_FOUND at request time."""
        kept = self.versions
        for label, version in self.labels.items():
            if kept.specific is not None and version not in kept.specific:
                yield Problem(
                    f"labels.{label}", f"not among versions.specific {list(kept.specific)}", version
                )
        if kept.latest is not None and len(set(self.labels.values())) > kept.latest:
            yield Problem(
                "labels",
                f"name {len(set(self.labels.values()))} versions but versions.latest keeps {kept.latest}; "
                "keep more, or list them in versions.specific",
                dict(self.labels),
            )


class Batching(Model):
    """Server-side batching; one set of parameters for every model of an instance.

    Rules: the server's bundle_factory_util.cc and TensorFlow's shared_batch_scheduler.h.
    """

    max_batch_size: Annotated[int, Field(ge=1, le=65536)]
    """Examples in a batch, and in one request unless large ones are split."""
    batch_timeout_micros: Annotated[int, Field(ge=0, le=10_000_000)]
    """How long an incomplete batch waits for more, in microseconds."""
    num_batch_threads: Annotated[int, Field(ge=1, le=256)] = 2
    """Batches that run at once. Keep it low: if every request finds a free thread, nothing batches."""
    max_enqueued_batches: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Batches that may wait; beyond them the server answers UNAVAILABLE (503)."""
    allowed_batch_sizes: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Sizes that batches are padded up to: ascending, the last one equal to max_batch_size."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._allowed_sizes_ascend_to_the_maximum()

    def _allowed_sizes_ascend_to_the_maximum(self) -> Iterator[Problem]:
        """The server refuses another last size when the model loads, minutes after it started."""
        sizes = self.allowed_batch_sizes
        if any(later <= earlier for earlier, later in pairwise(sizes)):
            yield Problem("allowed_batch_sizes", "must increase", list(sizes))
        elif sizes and sizes[-1] != self.max_batch_size:
            yield Problem(
                "allowed_batch_sizes",
                f"the last size must equal max_batch_size {self.max_batch_size}",
                list(sizes),
            )


class GpuMemory(Model):
    """How much of its GPU a server takes."""

    allow_growth: bool = True
    """Take memory as it is needed rather than all at start; it is never given back."""
    fraction: Annotated[float, Field(gt=0, le=0.95)] | None = None
    """Upper bound as a share of the whole GPU; the CUDA context (0.3 to 1 GiB) comes on top."""


class Memory(Model):
    """Host memory of each instance's container."""

    container_mib: Annotated[int, Field(ge=64)]
    """Limit in MiB, no swap. Both versions of a model are loaded while one replaces the other."""
    shm_mib: Annotated[int, Field(ge=1)] = 64
    """Shared memory in MiB; the server itself does not use it."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._shared_memory_fits()

    def _shared_memory_fits(self) -> Iterator[Problem]:
        """Shared memory counts against the container's limit."""
        if self.shm_mib > self.container_mib:
            yield Problem("shm_mib", f"exceeds container_mib {self.container_mib}", self.shm_mib)


Threads = Annotated[int, Field(ge=1, le=4096)]


class ThreadPools(Model):
    """Sizes of a server's thread pools; unset ones are derived from batching, or left to the server."""

    grpc_max: Threads | None = None
    """gRPC requests in flight: one thread each. Derived: twice max_batch_size, at least 16."""
    rest: Threads | None = None
    """REST requests in flight: one thread each. Derived like grpc_max."""
    intra_op: Threads | None = None
    inter_op: Threads | None = None


class SlotGroup(Model):
    """Slots of one node, by GPU index."""

    node: Slug
    gpus: Annotated[tuple[int, ...], Field(min_length=1)]


class Pool(Model):
    """Instances that serve the same models; Envoy balances over them."""

    name: Slug
    models: Annotated[tuple[ServedModel, ...], Field(min_length=1, max_length=100)]
    slots: Annotated[tuple[SlotGroup, ...], Field(min_length=1)]
    batching: Batching | None = None
    """Unset: no batching, each request runs alone."""
    gpu_memory: GpuMemory = GpuMemory()
    memory: Memory
    threads: ThreadPools = ThreadPools()
    load_timeout_s: Annotated[int, Field(ge=10, le=86400)] = 600
    """Patience for loading, in seconds: `up` waits this long for each instance before it fails."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._models_are_told_apart()
        yield from self._batches_can_fill()

    def _models_are_told_apart(self) -> Iterator[Problem]:
        """A server refuses two models of one name."""
        yield from _repeated("models", "name", [model.name for model in self.models])

    def _batches_can_fill(self) -> Iterator[Problem]:
        """Each waiting request holds a thread, so fewer threads than max_batch_size never fill a batch."""
        if self.batching is None or (self.threads.grpc_max is None and self.threads.rest is None):
            return
        most = max(self.threads.grpc_max or 0, self.threads.rest or 0)
        if most < self.batching.max_batch_size:
            yield Problem(
                "threads",
                f"{most} requests in flight can never fill a batch of {self.batching.max_batch_size}; "
                "raise grpc_max and rest, or lower batching.max_batch_size",
                self.threads.model_dump(exclude_none=True),
            )


class FrontEnd(Model):
    """Envoy: one on each node, the only thing that publishes ports."""

    bind: IPv4Address = IPv4Address("0.0.0.0")  # noqa: S104 - the front end is what is meant to be reached
    """Address of the node that the REST and gRPC ports are published on."""
    rest_port: Port = 8080
    grpc_port: Port = 8500
    metrics_port: Port = 9902
    """Prometheus pages of Envoy and of every instance, published on the node's loopback only."""
    request_timeout_s: Annotated[int, Field(ge=1, le=3600)] = 30
    """A whole request, retries included, in seconds."""
    max_request_mib: Annotated[int, Field(ge=1, le=1024)] = 16
    """Largest request body in MiB; also what is buffered so that a request can be tried again."""
    max_concurrent: Annotated[int, Field(ge=1, le=1_000_000)] = 4096
    """Requests in flight per pool before Envoy answers 503."""
    workers: Annotated[int, Field(ge=1, le=256)] = 4
    """Envoy's worker threads; one handles some thousand small requests a second."""
    memory_mib: Annotated[int, Field(ge=256)] = 1024
    """Memory limit of Envoy's container in MiB; it sheds load before it gets there."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._ports_differ()

    def _ports_differ(self) -> Iterator[Problem]:
        """One port, one listener."""
        ports = {"rest_port": self.rest_port, "grpc_port": self.grpc_port, "metrics_port": self.metrics_port}
        owner: dict[int, str] = {}
        for name, port in ports.items():
            first = owner.setdefault(port, name)
            if first != name:
                yield Problem(name, f"is also {first}", port)


class Rollout(Model):
    """How a change reaches the instances of a pool: always one after the other."""

    stop_timeout_s: Annotated[int, Field(ge=1, le=600)] = 10
    """How long a stopped container may take before it is killed, in seconds."""
    health_interval_s: Annotated[int, Field(ge=1, le=60)] = 5
    """How often an instance is asked whether its models are loaded, in seconds."""


class Settings(Model):
    """A whole stack file."""

    nodes: Annotated[tuple[Node, ...], Field(min_length=1)]
    """Machines with GPUs."""
    images: Images
    """What runs in the containers."""
    pools: Annotated[tuple[Pool, ...], Field(min_length=1)]
    """Which models are served, and by which GPUs."""
    front_end: FrontEnd = FrontEnd()
    """What clients reach."""
    rollout: Rollout = Rollout()
    """How changes reach the instances."""
