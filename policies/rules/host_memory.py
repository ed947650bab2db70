"""How much of its node's RAM a container may take, so that one that grows is ended, and not its neighbour."""

from collections.abc import Iterator

from pack.rule import EVERYWHERE, Finding, Params, Rule, about, unread
from pack.stack import Stack
from pack.workload import Workload

NAME = "host-memory"
TOTAL = "host-memory-total"
_PLAIN = "give it as a plain number of MiB"
_SHM_MIB = 64.0  # what the engine gives a container that does not say
_RESERVE_MIB = 1024.0
_OURS = ("server", "front-end", "publisher")


def check(stack: Stack, _params: Params) -> Iterator[Finding]:
    """Each container by itself: its limit, swap and shared memory."""
    beside_a_server = any(workload.is_server for workload in stack.workloads)
    for workload in stack.workloads:
        ours = workload.role in _OURS or beside_a_server  # in one pod
        may_be_ours = workload.unread.get("template")
        if not (ours or may_be_ours) or workload.is_exempt_from(NAME):
            continue
        yield from unread(workload, "memory", "Memory", _PLAIN)
        if workload.target == "docker":
            yield from _docker(workload)
        else:
            yield from _pod(workload)


def _has_limit(workload: Workload) -> bool:
    return (workload.limits.memory_mib or 0) > 0  # 0 is the engine's word for none


def _unknown(workload: Workload, name: str) -> bool:
    """Whether a property was reported as unread already."""
    whole = workload.unread.get("template")
    return bool(whole) or any(name in found.path for found in workload.unread.get("memory", ()))


def _docker(workload: Workload) -> Iterator[Finding]:
    limits = workload.limits
    if not _has_limit(workload):
        if not _unknown(workload, "memory"):
            what = f"memory: {_mib(limits.memory_mib)}: it may take all memory of its node"
            yield about(workload, what, "set memory, in MiB: room for two versions of its models")
        return
    swap, shm = limits.memory_swap_mib, limits.shm_mib
    if swap != limits.memory_mib and not _unknown(workload, "memorySwap"):
        meant = "it may swap as much again" if swap is None else "a server that swaps answers in seconds"
        what = f"memorySwap: {_mib(swap)}: is not memory ({_mib(limits.memory_mib)}): {meant}"
        yield about(workload, what, f"set memorySwap to {_mib(limits.memory_mib)}, which means no swap")
    yield from _shm_is_inside(workload, "shmSize", _SHM_MIB if shm is None else shm)


def _pod(workload: Workload) -> Iterator[Finding]:
    limits, at = workload.limits, "resources.limits.memory"
    if not _has_limit(workload):
        if not _unknown(workload, "resources"):
            what = f"{at}: {_mib(limits.memory_mib)}: it may take all memory of its node"
            yield about(workload, what, "set limits.memory: room for two versions of its models")
        return
    request = limits.memory_request_mib
    if request is not None and request != limits.memory_mib:
        what = (
            f"resources.requests.memory: {_mib(request)} Mi: is not the limit "
            f"({_mib(limits.memory_mib)} Mi): the node may promise more than it has"
        )
        yield about(workload, what, "leave requests.memory out, or make it the limit")
    if limits.shm_mib is not None:
        yield from _shm_is_inside(workload, "volumes: emptyDir.sizeLimit of /dev/shm", limits.shm_mib)


def _shm_is_inside(workload: Workload, path: str, shm: float) -> Iterator[Finding]:
    """Shared memory counts against the limit: what is full beyond it ends the container."""
    limit = workload.limits.memory_mib or 0
    if shm > limit:
        what = f"{path}: {_mib(shm)}: exceeds its memory of {_mib(limit)} MiB, which it counts against"
        yield about(workload, what, "lower it, or raise memory; the server itself uses none")


def check_total(stack: Stack, params: Params) -> Iterator[Finding]:
    """What may be used on a node fits its RAM: otherwise the kernel picks a victim, on its own terms."""
    reserve = params.number("reserveMib", _RESERVE_MIB)
    for machine in stack.machines:
        there = [one for one in stack.on_machine(machine) if one.role != "publisher"]  # it ends at once
        servers = [one for one in there if one.is_server]
        if servers:
            yield from _others_have_limits(there)
            yield from _fits(there, stack.node(servers[-1]).memory_mib, reserve)
    for server in stack.servers:
        if server.target == "kubernetes":
            yield from _replicas_fit(stack, server)


def _others_have_limits(there: list[Workload]) -> Iterator[Finding]:
    for workload in there:
        if workload.role not in _OURS and not _has_limit(workload) and not workload.is_exempt_from(TOTAL):
            yield from unread(workload, "memory", "Memory", _PLAIN)
            if not workload.unread.get("memory"):
                what = f"memory: {_mib(workload.limits.memory_mib)}: it may take what the servers there need"
                yield about(workload, what, f"set memory, or say so: the label tf-serving.exempt: {TOTAL}")


def _fits(there: list[Workload], ram: int | None, reserve: float) -> Iterator[Finding]:
    limited = [(one, one.limits.memory_mib or 0) for one in there if _has_limit(one)]
    total = sum(limit for _, limit in limited)
    if ram is None or total + reserve <= ram:
        return
    parts = " + ".join(f"{_mib(limit)} ({one.name})" for one, limit in limited)
    kept = f"of which {_mib(reserve)} are kept for itself"
    what = f"memory: {parts} = {_mib(total)} MiB on a node of {ram}, {kept}"
    yield about(limited[-1][0], what, "lower memory, or move a server to another node")


def _replicas_fit(stack: Stack, server: Workload) -> Iterator[Finding]:
    """A node that fills all its GPUs with this server. Judged where the pod tells about its node.

    What it tells is what pods may have of a node: the kubelet has taken its own part already.
    """
    node, said = stack.node(server), server.label("pods-per-node") or ""
    limit, count = server.limits.memory_mib, int(said) if said.isdecimal() else max(1, len(node.gpus))
    if limit and node.memory_mib is not None and limit * count > node.memory_mib:
        what = (
            f"resources.limits.memory: {count} x {_mib(limit)} Mi on a node that has {node.memory_mib} for "
            "pods: GPUs would stay empty"
        )
        yield about(server, what, "lower limits.memory, or use nodes with more memory")


def _mib(amount: float | None) -> str:
    return "unset" if amount is None else f"{amount:.12g}"


_WHY = (
    "https://github.com/tensorflow/serving/issues/2017",
    "https://github.com/tensorflow/serving/issues/1215",
)
_STEPS = (
    "Set memory (two versions of a model are loaded while one replaces the other) and memorySwap to the same "
    "number; keep the sum on a node below its RAM. Kubernetes: limits.memory, and requests equal or left out."
)
RULES = (
    Rule(
        name=NAME,
        scope="resource",
        protects="A container takes a known part of its node's memory, and no swap",
        severity="high",
        steps=_STEPS,
        why=_WHY,
        exempt="What is no model server, by the label `tf-serving.exempt: host-memory`.",
        levels=EVERYWHERE,
        check=check,
    ),
    Rule(
        name=TOTAL,
        scope="stack",
        protects="What the containers of a node may use together fits its RAM",
        severity="high",
        steps=_STEPS,
        why=_WHY,
        exempt=(
            "A container beside the servers may go without a limit by the label "
            "`tf-serving.exempt: host-memory-total`. RAM is known where a container of the node carries the "
            "label `tf-serving.node-memory-mib`; on a pod it is what pods may have of a node, and "
            "`tf-serving.pods-per-node` how many of these there are on one."
        ),
        levels=EVERYWHERE,
        check=check_total,
        schema={
            "reserveMib": {
                "type": "number",
                "minimum": 0,
                "default": _RESERVE_MIB,
                "description": "RAM of a Docker host that is kept for engine, kernel and file caches, in MiB",
            }
        },
    ),
)
