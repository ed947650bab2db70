"""Rules about what goes where: names, slots, networks."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from components import addresses
from components.base import repeated
from components.errors import Problem
from components.model_sizes import most_shared, smallest
from components.node_settings import Node
from components.pool_settings import Pool, SlotKey, leading_pools
from components.settings import Settings
from components.slots import slots_of


class Placement(NamedTuple):
    """A slot as a pool names it: where in the stack file, the pool with its position, the node, the key."""

    path: str
    position: int
    pool: Pool
    node: str
    key: SlotKey


def placements(settings: Settings) -> Iterator[Placement]:
    """Every slot that a pool names."""
    for p, pool in enumerate(settings.pools):
        for g, group in enumerate(pool.slots):
            for i, key in enumerate(group.gpus):
                yield Placement(f"pools[{p}].slots[{g}].gpus[{i}]", p, pool, group.node, key)


def names_are_unique(settings: Settings) -> Iterator[Problem]:
    """Nodes, pools and GPUs are told apart by name, name and UUID."""
    seen: dict[tuple[str, str], str] = {}
    for kind, value, path in _named(settings):
        first = seen.setdefault((kind, value), path)
        # Twins inside one node are that node's own finding.
        if first != path and first.partition("].")[0] != path.partition("].")[0]:
            yield Problem(path, f"is also {first}", value)


def _named(settings: Settings) -> Iterator[tuple[str, str, str]]:
    for n, node in enumerate(settings.nodes):
        yield "node", node.name, f"nodes[{n}].name"
        if node.network_name:
            yield "network", node.network_name, f"nodes[{n}].network_name"
        for g, gpu in enumerate(node.gpus):
            yield "GPU", gpu.uuid, f"nodes[{n}].gpus[{g}].uuid"
            for m, part in enumerate(gpu.mig):
                yield "GPU", part.uuid, f"nodes[{n}].gpus[{g}].mig[{m}].uuid"
        for g, uuid in enumerate(node.gpu_uuids):
            yield "GPU", uuid, f"nodes[{n}].gpu_uuids[{g}]"
    for p, pool in enumerate(settings.pools):
        yield "pool", pool.name, f"pools[{p}].name"


def slots_exist(settings: Settings) -> Iterator[Problem]:
    """A pool can only take GPUs that a node has."""
    nodes = {node.name: slots_of(node) for node in settings.nodes}
    for p, pool in enumerate(settings.pools):
        for g, group in enumerate(pool.slots):
            if group.node not in nodes:
                path = f"pools[{p}].slots[{g}].node"
                yield Problem(path, f"no such node; accepted: {', '.join(nodes)}", group.node)
    for path, _, _, node, key in placements(settings):
        if node in nodes and key not in nodes[node]:
            accepted = ", ".join(repr(known) for known in nodes[node])
            yield Problem(path, f"node {node} has no such slot; accepted: {accepted}", key)


def slots_have_one_owner(settings: Settings) -> Iterator[Problem]:
    """Two servers on one GPU: the first takes its memory, the second runs out of it."""
    owners: dict[tuple[str, SlotKey], tuple[str, Pool]] = {}
    for path, _, pool, node, key in placements(settings):
        first, owner = owners.setdefault((node, key), (path, pool))
        if first == path:
            continue
        if pool is owner or not (pool.sharing and owner.sharing):
            may_share = pool is not owner and settings.environment != "prod"
            remedy = "; or set sharing: true on both pools" if may_share else ""
            message = f"slot {key} of {node} is already taken by {first} (pool {owner.name}){remedy}"
            yield Problem(path, message, key)


def shared_slots_have_room(settings: Settings) -> Iterator[Problem]:
    """Servers on one GPU each say how much they take, and leave room for their CUDA contexts.

    Each process holds up to 1 GiB outside TensorFlow's pool (tensorflow/serving#1668).
    """
    sharers: dict[tuple[str, SlotKey], list[tuple[int, Pool]]] = defaultdict(list)
    for placed in placements(settings):
        if placed.pool.sharing:
            sharers[placed.node, placed.key].append((placed.position, placed.pool))
    reported: set[str] = set()
    slots = {node.name: slots_of(node) for node in settings.nodes} if sharers else {}
    for (node, key), pools in sharers.items():
        there = slots.get(node, {})
        named = (
            name for _, pool in pools for group in pool.slots if group.node == node for name in group.gpus
        )
        room = smallest(there[name] for name in named if name in there)
        most = most_shared(len(pools), room and room.memory_mib)
        for position, pool in pools:
            if len(pools) > 1 and pool.gpu_memory.fraction is None and pool.name not in reported:
                reported.add(pool.name)
                names = ", ".join(other.name for _, other in pools if other is not pool)
                message = (
                    f"is required: its slots are shared with {names}, and by default one server takes all"
                )
                yield Problem(f"pools[{position}].gpu_memory.fraction", message)
        fractions = [pool.gpu_memory.fraction for _, pool in pools]
        total = round(sum(fraction for fraction in fractions if fraction is not None), 6)
        if len(pools) > 1 and None not in fractions and total > most:
            parts = " + ".join(f"{pool.gpu_memory.fraction} ({pool.name})" for _, pool in pools)
            message = f"slot {key} of {node}: {parts} exceeds {most}; CUDA contexts need the rest"
            yield Problem(f"pools[{pools[-1][0]}].gpu_memory.fraction", message, fractions[-1])


def models_belong_to_one_pool(settings: Settings) -> Iterator[Problem]:
    """Envoy routes by model name, so a name leads to one pool; pools that only help it may serve it too."""
    owner: dict[str, str] = {}
    leading = {pool.name for pool in leading_pools(settings.pools)}
    for p, pool in enumerate(settings.pools):
        if pool.name not in leading:
            continue
        for m, model in enumerate(pool.models):
            for name in model.served_names:
                first = owner.setdefault(name, pool.name)
                if first != pool.name:
                    yield Problem(f"pools[{p}].models[{m}].name", f"is also served by pool {first}", name)


def relative_paths_are_local(settings: Settings) -> Iterator[Problem]:
    """`./…` means this project's folder, which another machine does not have."""
    remote = {node.name for node in settings.nodes if node.docker.endpoint.startswith(("ssh://", "tcp://"))}
    for p, pool in enumerate(settings.pools):
        nodes = sorted(remote & {group.node for group in pool.slots})
        for m, model in enumerate(pool.models):
            paths = {f"models[{m}].path": model.path}
            if model.optimized:
                paths[f"models[{m}].optimized.path"] = model.optimized.path
            for place, path in paths.items():
                if nodes and path.startswith("./"):
                    absent = (
                        f"is relative to this project, absent on {', '.join(nodes)}; give an absolute path"
                    )
                    yield Problem(f"pools[{p}].{place}", absent, path)


def one_node_per_engine(settings: Settings) -> Iterator[Problem]:
    """Nodes on one Docker Engine would publish the same ports twice."""
    first: dict[str, int] = {}
    for n, node in enumerate(settings.nodes):
        endpoint = node.docker.endpoint
        earlier = first.setdefault(_host(endpoint), n)
        if earlier != n:
            yield Problem(
                f"nodes[{n}].docker.endpoint",
                f"is also that of nodes[{earlier}]; one node per Docker Engine: all publish the same ports",
                endpoint,
            )


def _host(endpoint: str) -> str:
    if endpoint.startswith("ssh://"):
        return re.sub(r"^ssh://([^@]*@)?", "ssh://", endpoint).removesuffix(":22").lower()
    return endpoint.lower() if endpoint.startswith("tcp://") else endpoint


def addresses_are_apart(settings: Settings) -> Iterator[Problem]:
    """Clients could not tell two nodes at one address apart: each publishes the same ports."""
    yield from repeated("nodes", "address", [node.address.lower() for node in settings.nodes])


def subnets_have_room(settings: Settings) -> Iterator[Problem]:
    """Each slot has an address, each instance on a shared one, and what publishes a pool's files."""
    pools = Counter(node for node, _ in {(placed.node, placed.pool.name) for placed in placements(settings)})
    sharers = Counter(placed.node for placed in placements(settings) if placed.pool.sharing)
    for n, node in enumerate(settings.nodes):
        further = max(0, pools[node.name] - addresses.PLACES_OF_PUBLISHERS)
        room = addresses.room_for_sharers(node.subnet, slots_of(node).values()) - further
        if sharers[node.name] > room:
            message = (
                f"has no room for {sharers[node.name]} instances on shared slots of {pools[node.name]} pools"
            )
            yield Problem(f"nodes[{n}].subnet", f"{message}; take a larger one", str(node.subnet))


def former_names_are_free(settings: Settings) -> Iterator[Problem]:
    """A former name finds what is deployed under it, so nothing else may have it."""
    named: dict[str, Sequence[Node | Pool]] = {"nodes": settings.nodes, "pools": settings.pools}
    for kind, parts in named.items():
        now = {part.name: f"{kind}[{i}].name" for i, part in enumerate(parts)}
        for i, part in enumerate(parts):
            former = part.renamed_from
            if former is None:
                continue
            path = f"{kind}[{i}].renamed_from"
            if now.setdefault(former, path) != path:
                yield Problem(path, f"is also {now[former]}; it names what was there before", former)


def instance_names_differ(settings: Settings) -> Iterator[Problem]:
    """With its pool's name in it, the name of an instance on a shared slot may be that of another node's."""
    owners = {f"{node.name}-envoy": (f"node {node.name}'s Envoy", "") for node in settings.nodes}
    for path, _, pool, node, _key in placements(settings):
        owners.setdefault(f"{node}-{pool.name}-publisher", (f"the publisher of {path}", ""))
    slots = {node.name: slots_of(node) for node in settings.nodes}
    for path, _, pool, node, key in placements(settings):
        slot = slots.get(node, {}).get(key)
        if slot is None:
            continue
        own = f"{slot.name}-{pool.name}" if pool.sharing else slot.name
        first, place = owners.setdefault(f"{node}-{own}", (path, f"{node}/{slot.name}"))
        # Two pools on one slot are the finding of slots_have_one_owner.
        if first != path and place != f"{node}/{slot.name}":
            yield Problem(
                path, f"its instance {node}-{own} is named like that of {first}; rename the pool", key
            )


def volume_names_differ(settings: Settings) -> Iterator[Problem]:
    """A pool's files on a node are on a volume that is named for both, and are put there by a container."""
    owners = {f"{node.name}-envoy": (f"nodes[{n}]'s Envoy", "") for n, node in enumerate(settings.nodes)}
    for path, _, pool, node, key in placements(settings):
        first, place = owners.setdefault(f"{node}-{pool.name}", (path, f"{node}/{pool.name}"))
        if place != f"{node}/{pool.name}":
            message = f"its volume {node}-{pool.name}-config is named like that of {first}; rename the pool"
            yield Problem(path, message, key)


def nodes_have_work(settings: Settings) -> Iterator[Problem]:
    """A front end without instances would answer 503 to everything."""
    used = {group.node for pool in settings.pools for group in pool.slots}
    for n, node in enumerate(settings.nodes):
        if node.name not in used:
            yield Problem(f"nodes[{n}]", "no pool has a slot on it; add one or remove the node", node.name)
