"""The Plan: what a stack file comes to, decided in full before any resource is made.

Settings say what is wanted; the Plan says which containers that is, where each one sits and what it is
told. It is plain, ordered data: the same settings give the same plan, on any machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import PurePosixPath

from components import versions
from components.settings import (
    Batching,
    FrontEnd,
    Gpu,
    GpuMemory,
    Memory,
    Node,
    Pool,
    Rollout,
    ServedModel,
    Settings,
)

GRPC_PORT = 8500
REST_PORT = 8501
"""Ports inside every instance's container, as in the official image; only Envoy publishes any."""

# The engine takes the first address of a network for its bridge. Instances start further up, so that what
# is added to a node's network later finds room below them.
_FRONT_END_HOST = 2
_FIRST_INSTANCE_HOST = 10


@dataclass(frozen=True, kw_only=True)
class ThreadCounts:
    """Thread pool sizes that are handed to the server; None leaves one to it."""

    grpc_max: int | None
    rest: int | None
    intra_op: int | None
    inter_op: int | None


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """A model as one node sees it: `source` on the node, `target` in the container."""

    spec: ServedModel
    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class InstancePlan:
    """One `tensorflow_model_server` process, which owns one GPU."""

    name: str
    """Unique in the stack, from the slot it owns (`gpu-01-gpu0`): a renamed pool renames nothing."""
    container: str
    """Unique on the Docker Engine: stack and name."""
    node: str
    pool: str
    gpu: Gpu
    address: IPv4Address
    """On the node's private network; the same after a restart, a replacement, a reboot."""
    image: str
    version: str
    models: tuple[ModelPlan, ...]
    batching: Batching | None
    gpu_memory: GpuMemory
    memory: Memory
    threads: ThreadCounts
    load_timeout_s: int
    request_timeout_s: int
    rollout: Rollout
    follows: str | None
    """The instance that is rolled before this one: a pool changes one at a time."""
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where Envoy reaches an instance, and the name it gives it."""

    name: str
    address: IPv4Address


@dataclass(frozen=True, kw_only=True)
class PoolPlan:
    """The instances of a pool on one node: one Envoy cluster for REST, one for gRPC."""

    name: str
    models: tuple[str, ...]
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, kw_only=True)
class FrontEndPlan:
    """One node's Envoy."""

    name: str
    container: str
    node: str
    image: str
    spec: FrontEnd
    serving_address: IPv4Address
    """On the network of the instances."""
    front_address: IPv4Address
    """On the network that can publish ports."""
    pools: tuple[PoolPlan, ...]
    stop_timeout_s: int
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class NetworkPlan:
    """A Docker network with a declared subnet."""

    name: str
    subnet: IPv4Network
    gateway: IPv4Address


@dataclass(frozen=True, kw_only=True)
class NodePlan:
    """One Docker Engine and all that runs on it."""

    spec: Node
    serving_network: NetworkPlan
    """Internal: instances and Envoy."""
    front_network: NetworkPlan
    """Envoy alone: it publishes the ports."""
    instances: tuple[InstancePlan, ...]
    front_end: FrontEndPlan
    labels: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """The node's name in the stack file."""
        return self.spec.name


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A whole stack."""

    stack: str
    nodes: tuple[NodePlan, ...]

    @property
    def instances(self) -> tuple[InstancePlan, ...]:
        """Every instance, node by node."""
        return tuple(instance for node in self.nodes for instance in node.instances)

    def in_rollout_order(self) -> Iterator[InstancePlan]:
        """Every instance, each one after the one that it follows."""
        successors = {instance.follows: instance for instance in self.instances if instance.follows}
        for first in (instance for instance in self.instances if instance.follows is None):
            instance: InstancePlan | None = first
            while instance is not None:
                yield instance
                instance = successors.get(instance.name)


def make_plan(settings: Settings, *, stack: str, project_folder: str) -> Plan:
    """The plan for settings that passed every rule.

    `stack` goes into the names of containers and networks, so that two stacks share an engine.
    `project_folder` is what `./…` in a model's path is relative to.
    """
    builder = _Builder(settings, stack, project_folder)
    return Plan(stack=stack, nodes=tuple(builder.node(node) for node in settings.nodes))


class _Builder:
    def __init__(self, settings: Settings, stack: str, project_folder: str) -> None:
        self.settings = settings
        self.stack = stack
        self.project_folder = project_folder
        self.follows = dict(self._rollout_order())
        self.owners = {
            (group.node, index): pool
            for pool in settings.pools
            for group in pool.slots
            for index in group.gpus
        }

    def _rollout_order(self) -> Iterator[tuple[str, str | None]]:
        """Each instance and the one before it in its pool, in the order in which the slots are listed."""
        for pool in self.settings.pools:
            before: str | None = None
            for group in pool.slots:
                for gpu in group.gpus:
                    name = _instance_name(group.node, gpu)
                    yield name, before
                    before = name

    def node(self, node: Node) -> NodePlan:
        serving, front = node.subnet.subnets(prefixlen_diff=1)
        instances = tuple(self._instances(node, serving))
        return NodePlan(
            spec=node,
            serving_network=self._network(f"{node.name}-serving", serving),
            front_network=self._network(f"{node.name}-front", front),
            instances=instances,
            front_end=self._front_end(node, serving, front, instances),
            labels=self._labels(node.name, role="node"),
        )

    def _network(self, name: str, subnet: IPv4Network) -> NetworkPlan:
        return NetworkPlan(name=f"{self.stack}-{name}", subnet=subnet, gateway=subnet[1])

    def _instances(self, node: Node, subnet: IPv4Network) -> Iterator[InstancePlan]:
        for gpu in sorted(node.gpus, key=lambda gpu: gpu.index):
            pool = self.owners.get((node.name, gpu.index))
            if pool is not None:
                yield self._instance(node, pool, gpu, subnet[_FIRST_INSTANCE_HOST + gpu.index])

    def _instance(self, node: Node, pool: Pool, gpu: Gpu, address: IPv4Address) -> InstancePlan:
        name = _instance_name(node.name, gpu.index)
        image = self.settings.images.server
        version = versions.server_version(image)
        if version is None:
            raise ValueError(f"{image} names no version: these settings did not pass the rules")
        return InstancePlan(
            name=name,
            container=f"{self.stack}-{name}",
            node=node.name,
            pool=pool.name,
            gpu=gpu,
            address=address,
            image=image,
            version=version,
            models=tuple(self._model(model) for model in pool.models),
            batching=pool.batching,
            gpu_memory=pool.gpu_memory,
            memory=pool.memory,
            threads=_threads(pool),
            load_timeout_s=pool.load_timeout_s,
            request_timeout_s=self.settings.front_end.request_timeout_s,
            rollout=self.settings.rollout,
            follows=self.follows[name],
            labels=self._labels(node.name, role="instance", instance=name, gpu=gpu.uuid),
        )

    def _model(self, model: ServedModel) -> ModelPlan:
        source = PurePosixPath(model.path)
        if not source.is_absolute():
            source = PurePosixPath(self.project_folder) / source
        return ModelPlan(spec=model, source=str(source), target=f"/models/{model.name}")

    def _front_end(
        self, node: Node, serving: IPv4Network, front: IPv4Network, instances: tuple[InstancePlan, ...]
    ) -> FrontEndPlan:
        name = f"{node.name}-envoy"
        pools = (
            PoolPlan(
                name=pool.name,
                models=tuple(model.name for model in pool.models),
                endpoints=tuple(
                    Endpoint(name=instance.name, address=instance.address)
                    for instance in instances
                    if instance.pool == pool.name
                ),
            )
            for pool in self.settings.pools
        )
        return FrontEndPlan(
            name=name,
            container=f"{self.stack}-{name}",
            node=node.name,
            image=self.settings.images.envoy,
            spec=self.settings.front_end,
            serving_address=serving[_FRONT_END_HOST],
            front_address=front[_FRONT_END_HOST],
            pools=tuple(pool for pool in pools if pool.endpoints),
            stop_timeout_s=self.settings.rollout.stop_timeout_s,
            labels=self._labels(node.name, role="front-end"),
        )

    def _labels(self, node: str, **more: str) -> tuple[tuple[str, str], ...]:
        named = {"stack": self.stack, "node": node, **more}
        return tuple(sorted((f"tf-serving.{key}", value) for key, value in named.items()))


def _instance_name(node: str, gpu: int) -> str:
    return f"{node}-gpu{gpu}"


def _threads(pool: Pool) -> ThreadCounts:
    # Each request that waits for its batch holds a thread, so the server's own default (4 per CPU) caps the
    # batch. Twice the batch lets one fill while one runs (batching/README.md of the server).
    wanted = max(16, 2 * pool.batching.max_batch_size) if pool.batching else None
    return ThreadCounts(
        grpc_max=pool.threads.grpc_max or wanted,
        rest=pool.threads.rest or wanted,
        intra_op=pool.threads.intra_op,
        inter_op=pool.threads.inter_op,
    )
