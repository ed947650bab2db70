"""What every container carries: whose it is and, on an instance, what it owns.

A policy, or whoever meets a container on its machine, can tell from these alone.
"""

import re
from collections.abc import Mapping, Sequence

from components.node_settings import Node
from components.pool_settings import Pool
from components.slots import Slot, slots_of

Labels = tuple[tuple[str, str], ...]


def labels(stack: str, named: Mapping[str, str]) -> Labels:
    """Labels of something of a stack, in order; `named` are short (`role`)."""
    return tuple(sorted((f"tf-serving.{name}", value) for name, value in {"stack": stack, **named}.items()))


def instance_labels(
    stack: str,
    *,
    owner: str,
    node: Node,
    name: str,
    pool: Pool,
    slots: Sequence[Slot],
    models: Sequence[str],
    versions: Mapping[str, str],
) -> Labels:
    """Labels of an instance; what is given up is said, so that nothing is unseen.

    `versions` says which versions it has, where these never change under it.
    """
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
            # From a folder models come and go under a server that runs, and a label cannot.
            **_served(pool, models),
            **versions,
            "load-timeout-s": str(pool.load_timeout_s),
            **{given: "true" for given, said in given_up.items() if said},
        },
    )


def rollout_labels(pool: Pool) -> dict[str, str]:
    """How many of a pool's instances may be away at once, as a short label, where that is more than one."""
    return {"max-unavailable": str(pool.max_unavailable)} if pool.max_unavailable > 1 else {}


def helping_labels(pool: Pool, pools: Sequence[Pool]) -> dict[str, str]:
    """That a pool never takes over from another one, as a short label: `helps: mirror`.

    It gets a share of that one's requests; a standby does take over.
    """
    settings = (setting for one in pools for setting, name in one.traffic.helpers if name == pool.name)
    said = [re.split(r"\W", setting)[0] for setting in settings]  # dedicated, of `dedicated[0].pool`
    return {"helps": said[0]} if said and "standby" not in said else {}


def _served(pool: Pool, models: Sequence[str]) -> dict[str, str]:
    if pool.models_folder:
        return {"models-folder": pool.models_folder}
    return {"models": ",".join(sorted(models))}


def node_facts(node: Node) -> dict[str, str]:
    """What a policy may want to know of a node, as short labels; slots are `0` or `1:2`, as pools name them.

    They stand on one that nobody misses when it is replaced, and may be looked for on any of the node.
    """
    slots = slots_of(node)
    said = {
        "gpus": {key: slot.uuid for key, slot in slots.items()},
        "numa": {key: str(slot.numa_node) for key, slot in slots.items()},
        "cpus": {key: slot.cpus for key, slot in slots.items() if slot.cpus},
    }
    lists = {name: ";".join(f"{key}={value}" for key, value in of.items()) for name, of in said.items()}
    single = {"driver": node.driver, "memory-mib": str(node.memory_mib)}
    return {f"node-{name}": value for name, value in {**lists, **single}.items() if value}
