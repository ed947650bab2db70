"""The part of the Plan that says on which volume a pool's servers on a node find their files."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

from components.labels import Labels, labels


@dataclass(frozen=True, kw_only=True)
class ConfigPlan:
    """Files on a volume of a node, and the container that writes them there and ends."""

    name: str
    """Unique in the stack (`gpu-01-main-config`)."""
    former_name: str | None
    """What it was called before its node or its pool was renamed."""
    node: str
    pool: str
    """Empty where they are the front end's."""
    volume: str
    container: str
    """Both unique on the Docker Engine."""
    address: IPv4Address
    """On the network of the instances, which the container asks."""
    image: str
    volume_labels: Labels
    labels: Labels


def config_volume(stack: str, node: str, pool: str) -> str:
    """The volume with the files of a pool's servers on a node."""
    return f"{stack}.{node}-{pool}-config"


def front_end_volume(stack: str, node: str) -> str:
    """The volume with the files of a node's Envoy."""
    return f"{stack}.{node}-envoy-config"


def front_end_config(stack: str, node: str, *, address: IPv4Address, image: str, said: Labels) -> ConfigPlan:
    """Where the files of a node's Envoy are; `said` are the labels of what stages them there."""
    return ConfigPlan(
        name=f"{node}-envoy-config",
        former_name=None,
        node=node,
        pool="",
        volume=front_end_volume(stack, node),
        container=f"{stack}.{node}-envoy-publisher",
        address=address,
        image=image,
        volume_labels=labels(stack, {"node": node, "role": "config"}),
        labels=said,
    )


def config_plan(
    stack: str,
    owner: str,
    node: str,
    pool: str,
    *,
    former: tuple[str, str],
    address: IPv4Address,
    image: str,
    told: Mapping[str, str],
) -> ConfigPlan:
    """Where the files of a pool's servers on a node are; `former` are the names of both before.

    `told` are further labels of the container: whenever they change, it is replaced, and no server is.
    """
    name, before = f"{node}-{pool}", "-".join(former)
    return ConfigPlan(
        name=f"{name}-config",
        former_name=f"{before}-config" if before != name else None,
        node=node,
        pool=pool,
        volume=config_volume(stack, node, pool),
        container=f"{stack}.{name}-publisher",
        address=address,
        image=image,
        # Only what never changes under one name: a volume cannot be labelled anew.
        volume_labels=labels(stack, {"node": node, "role": "config"}),
        labels=labels(stack, {"owner": owner, "node": node, "role": "publisher", "pool": pool, **told}),
    )
