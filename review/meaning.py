"""What a step means for requests. What the provider replaces it says itself; the sentences here are ours.

They restate docs/adr/0005 and what `tests/integration/test_edits.py` and `test_rolling.py` show on an engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from review import cluster_meaning
from review.events import Step, Value

_NODE, _ROLE, _INSTANCE = "tf-serving.node", "tf-serving.role", "tf-serving.instance"


@dataclass(frozen=True)
class Pool:
    """A pool's instances on one node, now and afterwards: its Envoy sends requests to no other."""

    name: str
    node: str
    before: frozenset[str]
    after: frozenset[str]


@dataclass(frozen=True)
class Traffic:
    """The pool of each instance."""

    pools: Mapping[str, Pool]


def traffic(old: Mapping[str, Value], new: Mapping[str, Value]) -> Traffic:
    """Reads pools from both sides' outputs (components/contract.py)."""
    before, after = _members(old), _members(new)
    pools = {
        name: Pool(pool, node, before.get((pool, node), frozenset()), after.get((pool, node), frozenset()))
        for pool, node in {**before, **after}
        for name in before.get((pool, node), frozenset()) | after.get((pool, node), frozenset())
    }
    # An instance that changes its pool counts for the one that it goes to.
    return Traffic(pools | {name: pool for pool in list(pools.values()) for name in pool.after})


def _members(outputs: Mapping[str, Value]) -> dict[tuple[str, str], frozenset[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for one in outputs.get("instances") or ():
        found.setdefault((one["pool"], one["node"]), set()).add(one["name"])
    return {place: frozenset(names) for place, names in found.items()}


def meaning(step: Step, known: Traffic) -> str:
    """One sentence; steps that mean the same give the same one."""
    if step.type.startswith("kubernetes:"):
        return cluster_meaning.meaning(step)
    if _kind(step) != "Container":
        return _OTHER_TYPES.get((_kind(step), step.operation), "")
    role, node = step.labels.get(_ROLE, ""), step.labels.get(_NODE, "its node")
    if role == "instance":
        return _instance(step, known)
    if role == "front-end":
        return _FRONT_END[step.operation].format(node=node)
    if role in _BESIDE_TRAFFIC:
        return _BESIDE_TRAFFIC[role]
    return "" if step.operation in ("create", "update") else "what this container does is interrupted"


def _instance(step: Step, known: Traffic) -> str:
    pool = known.pools.get(step.labels.get(_INSTANCE, ""))
    if pool is None:
        return ""
    place = f"pool {pool.name} on {pool.node}"
    if step.operation == "update":
        return f"in place: {place} goes on serving"
    if step.operation == "create":
        return f"{place} grows from {len(pool.before)} to {len(pool.after)}"
    if step.operation == "delete":
        return f"{place} shrinks from {len(pool.before)} to {len(pool.after)}"
    if not step.because:
        return f"down at once, together with its network or volume: {place} answers nothing until it is back"
    total = len(pool.before | pool.after)
    if total == 1:
        return f"{place} has no other instance: it answers nothing until the new one has loaded its models"
    return f"rolled one at a time, or as `max_unavailable` says: {place} serves with {total - 1} of {total}"


_FRONT_END = {
    "create": "node {node} gets its front end",
    "update": "in place: the front end of {node} goes on",
    "delete": "node {node} answers nothing any more",
    "replace": "the ports of {node} are closed for a few seconds, until the new Envoy listens",
}
_BESIDE_TRAFFIC = {
    "acceptance": "has Envoy take its files, without a lost request",
    "publisher": "writes files anew, while the containers that read them run on",
    "drain": "its instance is drained before it is replaced: what it is at ends, and nothing new comes",
}
_OTHER_TYPES = {
    (
        "Network",
        "replace",
    ): "the whole node is down: what is on the network goes first and comes back after it",
    ("Network", "delete"): "what was on it is gone",
    ("RemoteImage", "create"): "pulled ahead, while everything runs",
    ("RemoteImage", "replace"): "pulled ahead, while everything runs; the old image is kept",
    ("Volume", "replace"): "its files are lost; what mounts it is replaced too",
    ("docker", "update"): "how the engine is reached: nothing on the node changes",
    ("docker", "replace"): "another engine: all of its resources are made there anew",
}


def _kind(step: Step) -> str:
    return step.type.rpartition(":")[2]


def meanings(steps: Sequence[Step], known: Traffic) -> list[str]:
    """What several steps mean, each sentence once."""
    return [text for text in dict.fromkeys(meaning(step, known) for step in steps) if text]
