"""The part of the Plan that says how an instance is drained: what has Envoy leave it alone before it goes."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address

from components.config_plan import front_end_volume
from components.labels import Labels, labels


@dataclass(frozen=True, kw_only=True)
class DrainPlan:
    """The container that drains an instance, and ends."""

    container: str
    """Unique on the Docker Engine."""
    address: IPv4Address
    """On the front network, where Envoy can be asked."""
    volume: str
    """With the files that the node's Envoy reads."""
    labels: Labels


@dataclass(frozen=True, kw_only=True)
class Drained:
    """What whoever drains an instance is told of it; `follows` is the one before it, if it is on the node."""

    name: str
    address: IPv4Address
    follows: IPv4Address | None


def drain_plan(stack: str, owner: str, node: str, instance: str, address: IPv4Address) -> DrainPlan:
    """How an instance is drained. It holds nothing that can change while the instance stays."""
    said = {"owner": owner, "node": node, "role": "drain", "instance": instance}
    return DrainPlan(
        container=f"{stack}.{instance}-drain",
        address=address,
        volume=front_end_volume(stack, node),
        labels=labels(stack, said),
    )


def drained(instances: Iterable[tuple[str, IPv4Address, str | None]]) -> tuple[Drained, ...]:
    """What is told of a node's instances, from their names, addresses, and the names of those before."""
    listed = list(instances)
    addresses = {name: address for name, address, _ in listed}
    return tuple(
        Drained(name=name, address=address, follows=addresses.get(follows or ""))
        for name, address, follows in listed
    )
