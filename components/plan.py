"""The Plan: what a stack file comes to, decided in full before any resource is made.

Settings say what is wanted; the Plan says which containers that is, where each one sits and what it is
told. It is plain, ordered data: the same settings give the same plan, on any machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from components import addresses
from components.config_plan import ConfigPlan, config_plan, config_volume, front_end_config
from components.drain_plan import DrainPlan, drain_plan, drained
from components.facts import server_version
from components.front_end_plan import Endpoint, FrontEndPlan, PoolPlan
from components.labels import helping_labels, instance_labels, labels, node_facts, rollout_labels
from components.model_plan import models_of
from components.model_sizes import size_labels, smallest
from components.node_settings import Node
from components.pool_settings import Pool, SlotGroup
from components.release_plan import as_served, pool_plan, versions_label
from components.server_spec import Server, thread_counts
from components.settings import Settings
from components.slots import Slot, slots_of
from components.types import format_cpus, parse_cpus

__all__ = [
    "Endpoint",
    "FrontEndPlan",
    "InstancePlan",
    "NetworkPlan",
    "NodePlan",
    "Plan",
    "PoolPlan",
    "make_plan",
]


@dataclass(frozen=True, kw_only=True)
class InstancePlan(Server):
    """One `tensorflow_model_server` process, which owns one slot."""

    name: str
    """Unique in the stack, from the slot it owns (`gpu-01-gpu0`): a renamed pool renames nothing."""
    former_names: tuple[str, ...]
    """What it may have been called: before a rename, or before its slot was shared."""
    container: str
    """Unique on the Docker Engine: stack and name, with a dot that no name of a node holds between them."""
    node: str
    pool: str
    slots: tuple[Slot, ...]
    """One; all of a node only where the pool says all_gpus."""
    address: IPv4Address
    """On the node's private network; the same after a restart, a replacement, a reboot."""
    config_volume: str
    """The volume with its files: `ConfigPlan.volume` of its pool."""
    follows: str | None
    """The instance that must be back before this one is touched: max_unavailable of a pool may be away."""
    drain: DrainPlan
    labels: tuple[tuple[str, str], ...]

    @property
    def slot(self) -> Slot:
        """The slot that it is named for."""
        return self.slots[0]

    @property
    def cpus(self) -> str | None:
        """The CPUs beside its slots; None where they are not said."""
        sets = [parse_cpus(slot.cpus) for slot in self.slots if slot.cpus]
        return format_cpus(frozenset().union(*sets)) if sets else None


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
    configs: tuple[ConfigPlan, ...]
    """One for each pool that has an instance here."""
    front_end: FrontEndPlan
    network_labels: tuple[tuple[str, str], ...]

    def instances_of(self, pool: str) -> tuple[InstancePlan, ...]:
        """The instances of a pool that are here."""
        return tuple(instance for instance in self.instances if instance.pool == pool)

    @property
    def images(self) -> dict[str, str]:
        """What its containers are made from, by role."""
        return {"server": self.instances[0].image, "envoy": self.front_end.image}

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


@dataclass(frozen=True, kw_only=True)
class _Placement:
    """An instance to be: what it is called, where it goes, and the one that is rolled before it.

    `own_name` is what tells it from the others of its node.
    """

    name: str
    former_names: tuple[str, ...]
    own_name: str
    node: str
    pool: Pool
    slots: tuple[Slot, ...]
    follows: str | None


class _Builder:
    def __init__(self, settings: Settings, stack: str, project_folder: str) -> None:
        self.settings = settings
        self.stack = stack
        self.owner = settings.owner or stack
        self.project_folder = project_folder
        self.nodes = {node.name: node for node in settings.nodes}
        self.slots = {node.name: slots_of(node) for node in settings.nodes}
        self.placements: dict[str, list[_Placement]] = {node.name: [] for node in settings.nodes}
        self.former_nodes = {node.name: node.renamed_from or node.name for node in settings.nodes}
        placed: set[Slot] = set()
        for pool in settings.pools:
            rolled: list[str] = []
            for position, (group, slots) in enumerate(self._shares(pool)):
                own_name = _own_name(slots[0], pool, pool.name)
                name = f"{group.node}-{own_name}"
                before = [_own_name(slots[0], pool, pool.renamed_from or pool.name)]
                # The first one on a slot takes the place of the one that had the slot for itself, if any did.
                before += [slots[0].name] if slots[0] not in placed else []
                former = dict.fromkeys(f"{self.former_nodes[group.node]}-{own}" for own in before)
                placement = _Placement(
                    name=name,
                    former_names=tuple(old for old in former if old != name),
                    own_name=own_name,
                    node=group.node,
                    pool=as_served(pool, position),
                    slots=slots,
                    follows=rolled[-pool.max_unavailable] if len(rolled) >= pool.max_unavailable else None,
                )
                self.placements[group.node].append(placement)
                placed.add(slots[0])
                rolled.append(placement.name)

    def _shares(self, pool: Pool) -> Iterator[tuple[SlotGroup, tuple[Slot, ...]]]:
        """The slots of each instance of a pool, in the order in which the stack file lists them."""
        for group in pool.slots:
            slots = tuple(self.slots[group.node][key] for key in group.gpus)
            if pool.all_gpus:
                yield group, slots
            else:
                yield from ((group, (slot,)) for slot in slots)

    def node(self, node: Node) -> NodePlan:
        serving, front = addresses.halves(node.subnet)
        instances = tuple(self._instances(node, serving, front))
        # Without the node's name: when that changes, networks of another name or label would be replaced, and
        # all that is attached to them at once.
        networks = node.network_name or self.stack
        return NodePlan(
            spec=node,
            serving_network=_network(f"{networks}-serving", serving),
            front_network=_network(f"{networks}-front", front),
            instances=instances,
            configs=tuple(self._configs(node, serving, instances)),
            front_end=self._front_end(node, serving, front, instances),
            # Not the owner: another label replaces a network, and all that is attached to it goes first.
            network_labels=labels(self.stack, {"role": "network"}),
        )

    def _instances(self, node: Node, subnet: IPv4Network, front: IPv4Network) -> Iterator[InstancePlan]:
        placements = self.placements[node.name]
        slots = self.slots[node.name].values()
        sharers = (placement.own_name for placement in placements if placement.pool.sharing)
        shared = addresses.of_sharers(subnet, slots, sharers)
        for placement in sorted(placements, key=_place):
            own = addresses.of_slot(subnet, placement.slots[0])
            address = shared.get(placement.own_name, own)
            yield self._instance(placement, address, addresses.of_drain(front, subnet, address))

    def _instance(self, placement: _Placement, address: IPv4Address, drained_at: IPv4Address) -> InstancePlan:
        pool, name = placement.pool, placement.name
        image = self.settings.images.server
        version = server_version(image)
        if version is None:
            raise ValueError(f"{image} names no version: these settings did not pass the rules")
        models = models_of(pool, self.project_folder)
        return InstancePlan(
            name=name,
            former_names=placement.former_names,
            container=f"{self.stack}.{name}",
            node=placement.node,
            pool=pool.name,
            slots=placement.slots,
            address=address,
            image=image,
            version=version,
            models=models.plans,
            model_mounts=models.mounts,
            by_version=pool.new_versions == "replace",
            needs_gpu_xla=any(model.optimized and model.optimized.kind == "xla" for model in pool.models),
            batching=pool.batching,
            gpu_memory=pool.gpu_memory,
            memory=pool.memory,
            threads=thread_counts(pool),
            server=pool.server,
            log_level=pool.log_level,
            load_timeout_s=pool.load_timeout_s,
            request_timeout_s=self.settings.front_end.request_timeout_s,
            rollout=self.settings.rollout,
            config_volume=config_volume(self.stack, placement.node, pool.name),
            follows=placement.follows,
            drain=drain_plan(self.stack, self.owner, placement.node, name, drained_at),
            labels=instance_labels(
                self.stack,
                owner=self.owner,
                node=self.nodes[placement.node],
                name=name,
                pool=pool,
                slots=placement.slots,
                models=[model.name for model in models.plans],
                versions=versions_label(pool),
            ),
        )

    def _configs(
        self, node: Node, serving: IPv4Network, instances: tuple[InstancePlan, ...]
    ) -> Iterator[ConfigPlan]:
        here = {instance.pool for instance in instances}
        pools = [pool for pool in self.settings.pools if pool.name in here]
        taken = (instance.address for instance in instances)
        names = (pool.name for pool in pools)
        places = addresses.of_publishers(serving, self.slots[node.name].values(), taken, names)
        for pool in pools:
            slots = (slot for one in instances if one.pool == pool.name for slot in one.slots)
            yield config_plan(
                self.stack,
                self.owner,
                node.name,
                pool.name,
                former=(self.former_nodes[node.name], pool.renamed_from or pool.name),
                address=places[pool.name],
                image=self.settings.images.server,
                told=size_labels(pool, smallest(slots))
                | rollout_labels(pool)
                | helping_labels(pool, self.settings.pools),
            )

    def _front_end(
        self, node: Node, serving: IPv4Network, front: IPv4Network, instances: tuple[InstancePlan, ...]
    ) -> FrontEndPlan:
        name = f"{node.name}-envoy"
        served = {placement.name: placement.pool for placement in self.placements[node.name]}
        here = [(Endpoint(name=one.name, address=one.address), served[one.name]) for one in instances]
        pools = (
            pool_plan(pool, [(endpoint, own) for endpoint, own in here if own.name == pool.name])
            for pool in self.settings.pools
        )
        said = {"owner": self.owner, "node": node.name}
        told = {"role": "publisher", **node_facts(node), **self.settings.front_end.given_up}
        return FrontEndPlan(
            name=name,
            former_name=_former(node.renamed_from, "envoy"),
            container=f"{self.stack}.{name}",
            node=node.name,
            image=self.settings.images.envoy,
            spec=self.settings.front_end,
            bind=node.bind or self.settings.front_end.bind,
            serving_address=addresses.front_end(serving),
            front_address=addresses.front_end(front),
            config=front_end_config(
                self.stack,
                node.name,
                address=addresses.envoy_publisher(serving),
                image=self.settings.images.envoy,
                said=labels(self.stack, {**said, **told}),
            ),
            acceptance=f"{self.stack}.{name}-acceptance",
            acceptance_address=addresses.envoy_acceptance(serving),
            acceptance_labels=labels(self.stack, {**said, "role": "acceptance"}),
            pools=tuple(pool for pool in pools if pool.endpoints),
            stop_timeout_s=self.settings.rollout.stop_timeout_s,
            drained=drained((one.name, one.address, one.follows) for one in instances),
            drain_timeout_s=self.settings.rollout.drain_timeout_s,
            # Its own image is only what it was made from: that of its Envoy is the publisher's, judged there.
            labels=labels(self.stack, {**said, "role": "front-end", "exempt": "pinned-images"}),
        )


def _own_name(slot: Slot, pool: Pool, called: str) -> str:
    """What tells an instance from the others of its node; `called` is the pool's name, now or before."""
    return f"{slot.name}-{called}" if pool.sharing else slot.name


def _place(placement: _Placement) -> tuple[int, int]:
    return placement.slots[0].gpu, placement.slots[0].part or 0


def _former(node: str | None, own: str) -> str | None:
    return None if node is None else f"{node}-{own}"


def _network(name: str, subnet: IPv4Network) -> NetworkPlan:
    return NetworkPlan(name=name, subnet=subnet, gateway=addresses.gateway(subnet))
