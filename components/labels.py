"""What every container carries: whose it is and, on an instance, what it owns.

A policy, or whoever meets a container on its machine, can tell from these alone.
"""

from collections.abc import Mapping, Sequence

from components.node_settings import Node
from components.pool_settings import Pool
from components.slots import Slot, slots_of
from components.types import format_cpus, parse_cpus

Labels = tuple[tuple[str, str], ...]


def labels(stack: str, named: Mapping[str, str]) -> Labels:
    """Labels of something of a stack, in order; `named` are short (`role`)."""
    return tuple(sorted((f"tf-serving.{name}", value) for name, value in {"stack": stack, **named}.items()))


def instance_labels(
    stack: str, *, owner: str, node: Node, name: str, pool: Pool, slots: Sequence[Slot], models: Sequence[str]
) -> Labels:
    """Labels of an instance; what is given up is said, so that nothing is unseen."""
    given_up = {
        "sharing": pool.sharing,
        "all-gpus": pool.all_gpus,
        "share-cpus": node.share_cpus,
        "single": pool.single,
        "unbatched": pool.unbatched,
    }
    return labels(
        stack,
        {
            "owner": owner,
            "node": node.name,
            "role": "instance",
            "instance": name,
            "pool": pool.name,
            "slot": ",".join(slot.name for slot in slots),
            "gpu": ",".join(slot.uuid for slot in slots),
            "models": ",".join(sorted(models)),
            "load-timeout-s": str(pool.load_timeout_s),
            **{given: "true" for given, said in given_up.items() if said},
        },
    )


def node_labels(node: Node) -> dict[str, str]:
    """Short labels with the facts of a node: RAM, driver, and of each GPU by index its UUID, socket and CPUs.

    On what writes a pool's files, as another label replaces a container and that one is missed by nobody.
    """
    gpus = sorted(node.all_gpus(), key=lambda gpu: gpu.index)
    cpus: dict[int, frozenset[int]] = {}
    for slot in slots_of(node).values():
        if slot.cpus:
            cpus[slot.gpu] = cpus.get(slot.gpu, frozenset()) | parse_cpus(slot.cpus)
    facts = {
        "node-memory-mib": str(node.memory_mib),
        "node-driver": node.driver or "",
        "node-gpus": _by_index({gpu.index: gpu.uuid for gpu in gpus}),
        "node-numa": _by_index({gpu.index: str(gpu.numa_node) for gpu in gpus}),
        "node-cpus": _by_index({index: format_cpus(found) for index, found in cpus.items()}),
    }
    return {name: value for name, value in facts.items() if value}


def _by_index(values: Mapping[int, str]) -> str:
    return ";".join(f"{index}={value}" for index, value in values.items())
