"""Where everything sits in a node's subnet: one layout, which settings, plan and rules share.

The lower half is the serving network (instances and Envoy), the upper half the front network: Envoy, and what
drains an instance, at the position that the instance has in the other half.

| position in a half | who |
|---|---|
| 1 | the engine's bridge, as the engine itself would choose |
| 2 | Envoy |
| 3, 4 | what stages Envoy's files and what has it take them, while they run |
| 5 to 9 | publishers of pools, while they run; with more pools on a node, also where no instance is |
| 10 + 7 x GPU + part | the instance that has that slot for itself, used or not |
| the others, up to the last but one | instances that share a slot, each where its name leads |

So an address follows from the slot, or from the slot and the pool, and no edit of another instance moves it:
Pulumi makes what is new before it removes what is gone, and two containers cannot have one address.
"""

import hashlib
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network

from components.node_settings import WHOLE_GPU_SLOTS
from components.slots import Slot

_GATEWAY_HOST = 1
_FRONT_END_HOST = 2
_ENVOY_PUBLISHER_HOST = 3
_ENVOY_ACCEPTANCE_HOST = 4
_FIRST_INSTANCE_HOST = 10
_GPUS_OF_A_NODE = 16
PLACES_OF_PUBLISHERS = _FIRST_INSTANCE_HOST - _ENVOY_ACCEPTANCE_HOST - 1
"""Pools of a node whose publishers need none of the places between instances."""


def halves(subnet: IPv4Network) -> tuple[IPv4Network, IPv4Network]:
    """A node's serving network and its front network."""
    serving, front = subnet.subnets(prefixlen_diff=1)
    return serving, front


def gateway(network: IPv4Network) -> IPv4Address:
    """The engine's own address on a network."""
    return network[_GATEWAY_HOST]


def front_end(network: IPv4Network) -> IPv4Address:
    """Envoy's address on a network."""
    return network[_FRONT_END_HOST]


def envoy_publisher(serving: IPv4Network) -> IPv4Address:
    """Where the container sits that stages Envoy's files."""
    return serving[_ENVOY_PUBLISHER_HOST]


def envoy_acceptance(serving: IPv4Network) -> IPv4Address:
    """Where the container sits that has Envoy take its files."""
    return serving[_ENVOY_ACCEPTANCE_HOST]


def of_drain(front: IPv4Network, serving: IPv4Network, instance: IPv4Address) -> IPv4Address:
    """Where the container sits that drains the instance with this address."""
    return front[int(instance) - int(serving.network_address)]


def of_slot(serving: IPv4Network, slot: Slot) -> IPv4Address:
    """Where the instance sits that has a slot for itself."""
    return serving[_host_of(slot)]


def of_sharers(serving: IPv4Network, slots: Iterable[Slot], names: Iterable[str]) -> dict[str, IPv4Address]:
    """Where the instances sit that share slots, by what tells them apart on the node (`gpu0-main`).

    `slots` are all of the node's. A name's digest chooses; only a name that meets another one or a slot's own
    place there moves on to the next free one. There must be room (`room_for_sharers`).
    """
    hosts = _instance_hosts(serving)
    taken = _kept_for_slots(slots)
    found = {}
    for name in sorted(names):
        start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
        turns = (hosts[(start + step) % len(hosts)] for step in range(len(hosts)))
        host = next(host for host in turns if host not in taken)
        taken.add(host)
        found[name] = serving[host]
    return found


def of_publishers(
    serving: IPv4Network, slots: Iterable[Slot], taken: Iterable[IPv4Address], pools: Iterable[str]
) -> dict[str, IPv4Address]:
    """Where the containers sit that publish a pool's files; `taken` are the addresses of instances.

    They have ended when another `up` begins, so that one may be given the place that another one had.
    """
    kept = {serving[host] for host in _kept_for_slots(slots) if host < serving.num_addresses} | set(taken)
    low = [serving[host] for host in range(_ENVOY_ACCEPTANCE_HOST + 1, _FIRST_INSTANCE_HOST)]
    places = [*low, *(serving[host] for host in _instance_hosts(serving) if serving[host] not in kept)]
    return dict(zip(pools, places, strict=False))


def room_for_sharers(subnet: IPv4Network, slots: Iterable[Slot]) -> int:
    """How many instances on shared slots a node's subnet has addresses for."""
    return len(_instance_hosts(halves(subnet)[0])) - len(_kept_for_slots(slots))


def _host_of(slot: Slot) -> int:
    return _FIRST_INSTANCE_HOST + WHOLE_GPU_SLOTS * slot.gpu + (slot.part or 0)


def _kept_for_slots(slots: Iterable[Slot]) -> set[int]:
    # Of every GPU that there could be: one that is added moves nobody.
    whole = {_FIRST_INSTANCE_HOST + WHOLE_GPU_SLOTS * gpu for gpu in range(_GPUS_OF_A_NODE)}
    return whole | {_host_of(slot) for slot in slots}


def _instance_hosts(serving: IPv4Network) -> range:
    return range(_FIRST_INSTANCE_HOST, serving.num_addresses - 1)  # the last address is the broadcast's
