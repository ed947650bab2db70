"""Each server has CPUs of its own beside its GPU, or is told how many threads to start."""

import re
from collections import defaultdict
from collections.abc import Iterator

from pack.cpus import cpus_of, written
from pack.rule import Finding, Params, Rule, about, unread
from pack.slots import slots
from pack.stack import Node, Stack
from pack.workload import Workload

NAME = "cpu-affinity"
_PLAIN = "give it as a plain value, such as 0-15,64-79"
_OF_ALL = ("tensorflow_session_parallelism",)
_OF_EACH = ("tensorflow_intra_op_parallelism", "tensorflow_inter_op_parallelism")
_GRPC, _REST = "grpc_max_threads", "rest_api_num_threads"
_SLOT = re.compile(r"gpu(\d+)")


def check(stack: Stack, params: Params) -> Iterator[Finding]:
    """Docker by CPU sets, host by host; Kubernetes, where only quotas exist, by threads."""
    for machine in stack.machines:
        servers = [one for one in stack.on_machine(machine) if one.is_server]
        pinned = [(one, cpus) for one in servers if (cpus := cpus_of(one.limits.cpu_set or ""))]
        yield from _disjoint(pinned, params)
        for server, cpus in pinned:
            yield from _beside_its_gpu(server, cpus, stack.node(server))
        for server in servers:
            yield from unread(server, "cpus", "CPUs", _PLAIN)
            if server.limits.cpu_set and cpus_of(server.limits.cpu_set) is None:
                what = f"cpuSet: {server.limits.cpu_set}: is no set of CPUs"
                yield about(server, what, "write it as Linux does, such as 0-15,64-79")
            elif not (server.limits.cpu_set or server.unread.get("cpus")):
                yield from _without_a_set(server, alone=len(servers) == 1)
    for server in stack.servers:
        if server.target == "kubernetes":
            yield from unread(server, "cpus", "CPUs", _PLAIN)
            quota = "unset" if server.limits.cpus is None else f"{server.limits.cpus:g}"
            yield from _threads_are_said(server, f"resources.limits.cpu: {quota}: is no set of CPUs")


def _disjoint(pinned: list[tuple[Workload, frozenset[int]]], params: Params) -> Iterator[Finding]:
    """Two servers on the same CPUs each start threads as if alone."""
    owners: dict[int, Workload] = {}
    for server, cpus in pinned:
        rivals: dict[str, set[int]] = defaultdict(set)
        for cpu in cpus:
            owner = owners.setdefault(cpu, server)
            if owner is not server and not _may_share(server, owner, params):
                rivals[owner.name].add(cpu)
        for name, shared in rivals.items():
            what = f"cpuSet: {server.limits.cpu_set}: CPUs {written(frozenset(shared))} are those of {name}"
            fix = "give each server CPUs of its own"
            if params.environment != "prod":
                fix += "; or say on all of them that they share: the label tf-serving.share-cpus: 'true'"
            yield about(server, what, fix)


def _may_share(one: Workload, other: Workload, params: Params) -> bool:
    both = (one.says("share-cpus") and other.says("share-cpus")) or (
        one.says("sharing") and other.says("sharing")
    )
    return both and params.environment != "prod"


def _beside_its_gpu(server: Workload, cpus: frozenset[int], node: Node) -> Iterator[Finding]:
    """Copies to a GPU of another socket cross over between the two. Judged where labels tell of the node."""
    homes = {node.numa[gpu] for gpu in _gpus(server, node) if gpu in node.numa}
    beside: set[int] = set()
    for gpu, text in node.cpus.items():
        if node.numa.get(gpu) in homes:
            beside |= cpus_of(text) or frozenset()
    stray = cpus - beside
    if beside and stray:
        home = " and ".join(str(each) for each in sorted(homes))
        apart = f"CPUs {written(frozenset(stray))} are not on NUMA node {home} of its GPU"
        what = f"cpuSet: {server.limits.cpu_set}: {apart}"
        yield about(server, what, f"choose from {written(frozenset(beside))} (`nvidia-smi topo -m`)")


def _gpus(server: Workload, node: Node) -> Iterator[int]:
    """Indices of the GPUs that it has."""
    index = {uuid.lower(): number for number, uuid in node.gpus.items()}
    for slot in slots(server, node):
        card = (slot.card or "").lower()
        if card.isdecimal():
            yield int(card)
        elif card in index:
            yield index[card]
        elif slot.card is None and (named := _SLOT.match(server.label("slot") or "")):
            yield int(named[1])  # the UUID of a part of a GPU does not tell which one


def _without_a_set(server: Workload, *, alone: bool) -> Iterator[Finding]:
    if server.limits.cpus is not None:
        yield from _threads_are_said(server, f"cpus: {server.limits.cpus:g}: is no set of CPUs")
    elif not alone:
        yield from _threads_are_said(server, "cpuSet: unset: other servers are on these CPUs")


def _threads_are_said(server: Workload, why: str) -> Iterator[Finding]:
    """A quota is not seen: the server starts threads for every CPU of its node, and is held up."""
    yield from unread(server, "command", "Arguments", "give them as plain text")
    if server.unread.get("command"):
        return
    missing = [f"--{name}" for name in _unsaid(server)]
    if missing:
        what = f"{why}, and without {', '.join(missing)} it starts threads for all CPUs of its node"
        pinning = "set cpuSet, or " if server.target == "docker" else ""
        yield about(server, what, f"{pinning}set {' and '.join(missing)} to fit its share of the CPUs")


def _unsaid(server: Workload) -> Iterator[str]:
    if not _said(server, *_OF_ALL):
        yield from (name for name in _OF_EACH if not _said(server, name))
    if not _said(server, _GRPC):
        yield _GRPC
    rest = server.flag("rest_api_port") or ("0" if server.entrypoint else "8501")
    if rest != "0" and not _said(server, _REST):
        yield _REST


def _said(server: Workload, name: str) -> bool:
    value = server.flag(name) or ""
    return value.isdecimal() and int(value) > 0  # 0 leaves it to the server


RULES = (
    Rule(
        name=NAME,
        scope="stack",
        protects="Servers of a node do not run on each other's CPUs, nor far from their GPU",
        severity="medium",
        steps=(
            "Set cpuSet to CPUs beside the GPU, different ones for each server. Where there is only a quota "
            "(Kubernetes) set --tensorflow_intra_op_parallelism, --tensorflow_inter_op_parallelism, "
            "--grpc_max_threads and --rest_api_num_threads."
        ),
        why=(
            "https://github.com/tensorflow/serving/issues/1529",
            "https://docs.kernel.org/admin-guide/mm/numa_memory_policy.html",
        ),
        exempt=(
            "Outside prod: `tf-serving.share-cpus: 'true'` on all that share CPUs (`share_cpus` of a node), "
            "or `tf-serving.sharing: 'true'`. NUMA nodes are judged where a container of the node carries "
            "the labels `tf-serving.node-numa` and `tf-serving.node-cpus`."
        ),
        levels={"local": "advisory", "staging": "mandatory", "prod": "mandatory"},
        check=check,
    ),
)
