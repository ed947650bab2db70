"""On one node no slot has two owners, and nobody is given GPUs that were not named."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

from pack.models import model_names
from pack.rule import EVERYWHERE, Finding, Params, Rule, about, unread
from pack.slots import Slot, everything, slots
from pack.stack import Stack
from pack.workload import Workload

NAME = "one-model-per-gpu"
_PIN = 'pin one GPU by its UUID (device_requests with device_ids=["GPU-…"]; `nvidia-smi -L` prints it)'
_LIMIT = "set limits to one `nvidia.com/gpu` (or one MIG resource), and leave requests out"
_MULTI = "the label tf-serving.multi-gpu: 'true'"
_PLAIN = "give it as a plain value: which GPU a server owns must be known before anything is made"
_PRIVILEGED = "a privileged container sees all GPUs of its node"


def check(stack: Stack, params: Params) -> Iterator[Finding]:
    """Docker by what pins in fact, Kubernetes by limits; both by the models of each server."""
    docker = [one for one in stack.workloads if one.target == "docker" and not one.is_exempt_from(NAME)]
    for workload in docker:
        yield from _not_known(workload)
        yield from _is_named(stack, workload, params)
        yield from _label_is_true(stack, workload)
    yield from _has_one_owner(stack, docker, params)
    for workload in stack.workloads:
        if workload.target == "kubernetes":
            yield from _not_known(workload)
            if not workload.is_exempt_from(NAME):
                yield from _chosen_by_the_scheduler(workload, params)
    for server in stack.servers:
        yield from _models_are_declared(stack, server)
    yield from _pool_is_large_enough(stack)


def _not_known(workload: Workload) -> Iterator[Finding]:
    yield from unread(workload, "gpus", "GPU", _PLAIN)
    if workload.is_server:
        yield from unread(workload, "env", "GPU", _PLAIN)


def _is_named(stack: Stack, workload: Workload, params: Params) -> Iterator[Finding]:
    """`all`, a count and a list give a server cards that it does not compute on, and others need."""
    for request in workload.gpus:
        if request.path.endswith("privileged"):
            what = f"{request.path}: true: {_PRIVILEGED}"
            yield about(workload, what, f"remove privileged; {_PIN}")
        elif everything(request):
            if not _may_have_all(workload, params):
                yield _refused(workload, request.path, "all: takes all GPUs of its node", params)
        elif request.count is not None:
            yield _refused(workload, request.path, _count(request.count), params)
    named = list(slots(workload, stack.node(workload)))
    if len(named) > 1 and not _may_have_all(workload, params):
        written = ", ".join(slot.written for slot in named)
        yield _refused(workload, named[0].path, f"{written}: takes {len(named)} GPUs", params)


def _count(count: int) -> str:
    if count == 0:
        return "0: is a count of none: the image's own NVIDIA_VISIBLE_DEVICES=all stays in force"
    return f"{count}: is a count and no index: it always takes the first GPUs of its node"


def _may_have_all(workload: Workload, params: Params) -> bool:
    return workload.says("all-gpus") and params.environment != "prod"


def _refused(workload: Workload, path: str, what: str, params: Params) -> Finding:
    by_name = "" if params.environment == "prod" else "; or say so: the label tf-serving.all-gpus: 'true'"
    return about(workload, f"{path}: {what}", f"{_PIN}{by_name}")


def _label_is_true(stack: Stack, workload: Workload) -> Iterator[Finding]:
    """A label that names another GPU than the one that is pinned misleads whoever reads it."""
    label = workload.label("gpu")
    pinned = {slot.id for slot in slots(workload, stack.node(workload))}
    if label is None or any(everything(request) for request in workload.gpus):
        return
    named = {slot.strip() for slot in label.split(",") if slot.strip()}
    if {name.lower() for name in named} != {name.lower() for name in pinned}:
        shown = ", ".join(sorted(pinned)) or "none"
        what = f"label tf-serving.gpu: {label}: is not what it is given ({shown})"
        yield about(workload, what, "make the label say the GPU that is pinned")


def _has_one_owner(stack: Stack, docker: list[Workload], params: Params) -> Iterator[Finding]:
    """Two processes on one card: the first takes its memory, the second runs out of it."""
    owners: dict[tuple[str | None, str], list[tuple[Workload, Slot]]] = defaultdict(list)
    users: dict[str | None, list[tuple[Workload, Slot]]] = defaultdict(list)
    greedy: dict[str | None, list[Workload]] = defaultdict(list)
    for workload in docker:
        if any(everything(request) for request in workload.gpus):
            greedy[workload.machine].append(workload)
        for slot in slots(workload, stack.node(workload)):
            # A UUID is one card wherever it is named; an index is one of its machine.
            owners[workload.machine if slot.is_index else None, slot.id].append((workload, slot))
            users[workload.machine].append((workload, slot))
    for found in owners.values():
        yield from _shared(found, params)
    for found in users.values():
        yield from _cut_up(found)
        yield from _notations_compare(found)
    for machine, workloads in greedy.items():
        owners_there = {owner.name: owner for owner, _ in users[machine]}
        for position, workload in enumerate(workloads):
            yield from _beside(workload, [*owners_there.values(), *workloads[:position]])


def _shared(found: list[tuple[Workload, Slot]], params: Params) -> Iterator[Finding]:
    workloads = [workload for workload, _ in found]
    if params.environment != "prod" and all(one.says("sharing") for one in workloads):
        return
    for workload, slot in found[1:]:
        what = f"{slot.path}: {slot.written}: {_card(slot)} is owned by {workloads[0].name}"
        fix = "give each server a GPU (or a MIG instance) of its own"
        if params.environment != "prod":
            fix += "; or say on all of them that they share it: the label tf-serving.sharing: 'true'"
        yield about(workload, what, fix)


def _card(slot: Slot) -> str:
    return f"the MIG instance {slot.id}" if slot.is_part else f"GPU {slot.id}"


def _cut_up(found: list[tuple[Workload, Slot]]) -> Iterator[Finding]:
    """A card that is cut up has no whole to give."""
    parts = {slot.card: workload for workload, slot in found if slot.is_part}
    for workload, slot in found:
        if not slot.is_part and slot.card in parts:
            other = parts[slot.card].name
            what = f"{slot.path}: {slot.written}: {other} has a MIG instance of the same GPU"
            yield about(workload, what, "name a MIG instance of that GPU, or another GPU")


def _notations_compare(found: list[tuple[Workload, Slot]]) -> Iterator[Finding]:
    """Without the node's map an index and a UUID may be one card."""
    by_uuid = [workload for workload, slot in found if not slot.is_index]
    for workload, slot in found:
        other = next((one for one in by_uuid if one is not workload), None)
        if slot.is_index and other is not None:
            what = (
                f"{slot.path}: {slot.written}: an index, while {other.name} on the same node names a UUID: "
                "they may be one card"
            )
            yield about(workload, what, f"{_PIN}; indices move when a card is lost")


def _beside(greedy: Workload, others: list[Workload]) -> Iterator[Finding]:
    names = sorted({other.name for other in others if other is not greedy})
    if names:
        what = f"takes all GPUs of its node, on which {', '.join(names)} has one"
        yield about(greedy, what, _PIN)


def _chosen_by_the_scheduler(workload: Workload, params: Params) -> Iterator[Finding]:
    for request in workload.gpus:
        if request.path.endswith("NVIDIA_VISIBLE_DEVICES"):
            what = f"{request.path}: {','.join(request.ids)}: overrides the GPU that the scheduler chose"
            yield about(workload, what, f"remove the variable; {_LIMIT}")
        elif request.path.endswith("privileged"):
            yield about(workload, f"{request.path}: true: {_PRIVILEGED}", "remove privileged")
    limits, requests = _section(workload, "limits"), _section(workload, "requests")
    if limits or requests or (workload.gpus and workload.is_server):
        yield from _one_limit(workload, limits, requests, params)


def _one_limit(
    workload: Workload, limits: dict[str, int], requests: dict[str, int], params: Params
) -> Iterator[Finding]:
    """The scheduler hands out what is in limits; more than one is computed on by nobody."""
    total = sum(limits.values())
    shared = [name for name in limits if ".shared" in name]
    if shared and not (workload.says("sharing") and params.environment != "prod"):
        what = f"resources.limits: {shared[0]}: a share of a GPU that others compute on too"
        yield about(workload, what, _LIMIT)
    if total != 1 and not (total and (workload.says("multi-gpu") or _may_have_all(workload, params))):
        what = f"resources.limits: {_counts(limits)}: a model server has exactly one GPU"
        yield about(workload, what, f"{_LIMIT}; or say that its models compute on several: {_MULTI}")
    if requests and requests != limits:
        what = f"resources.requests: {_counts(requests)}: differ from limits, which GPUs do not allow"
        yield about(workload, what, _LIMIT)


def _counts(section: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in section.items()) or "none"


def _section(workload: Workload, section: str) -> dict[str, int]:
    counted = (request for request in workload.gpus if f".resources.{section}[" in request.path)
    return {request.path.rpartition("[")[2].rstrip("]"): request.count or 0 for request in counted}


def _models_are_declared(stack: Stack, server: Workload) -> Iterator[Finding]:
    """Models of one process share its GPU memory: several only where somebody said so."""
    text = stack.files(server).get(server.flag("model_config_file") or "", "")
    names = set(model_names(text))
    label = server.label("models")
    declared = {name.strip() for name in (label or "").split(",") if name.strip()}
    if len(names) > 1 and names != declared and not server.label("models-folder"):
        what = (
            f"serves {len(names)} models ({', '.join(sorted(names))}) on one GPU, but its label "
            f"tf-serving.models says {label or 'nothing'}"
        )
        fix = "one model a server; or declare them together (`models` of a pool, which sets the label)"
        yield about(server, what, fix)


def _pool_is_large_enough(stack: Stack) -> Iterator[Finding]:
    """Replicas for which the nodes have no GPU wait for ever."""
    pools: dict[tuple[str, ...], list[Workload]] = defaultdict(list)
    for workload in stack.workloads:
        if _section(workload, "limits"):
            key = tuple(f"{name}={value}" for name, value in sorted(workload.node_selector.items()))
            pools[key].append(workload)
    for workloads in pools.values():
        said = list(chain.from_iterable(_pool_gpus(one) for one in workloads))
        wanted = sum(one.replicas * sum(_section(one, "limits").values()) for one in workloads)
        if said and wanted > min(said):
            names = ", ".join(f"{one.name} ({one.replicas})" for one in workloads)
            what = f"replicas: {names} want {wanted} GPUs, and their nodes have {min(said)}"
            yield about(workloads[-1], what, "lower replicas, or add nodes to the pool")


def _pool_gpus(workload: Workload) -> Iterator[int]:
    said = workload.label("pool-gpus") or ""
    if said.isdecimal():
        yield int(said)


RULES = (
    Rule(
        name=NAME,
        scope="stack",
        protects="One GPU belongs to one model server, by name",
        severity="critical",
        steps=(
            "Pin each server to one GPU by its UUID (Kubernetes: one nvidia.com/gpu in limits), and no two "
            "to the same. `all`, counts and lists are refused, and so is privileged, which sees every GPU."
        ),
        why=(
            "https://github.com/NVIDIA/nvidia-docker/issues/1506",
            "https://github.com/tensorflow/serving/issues/1929",
        ),
        exempt=(
            "What is no model server (a GPU exporter) by the label `tf-serving.exempt: one-model-per-gpu`. "
            "Outside prod: `tf-serving.sharing: 'true'` on all that share a slot, "
            "`tf-serving.all-gpus: 'true'`. Several models of one server: the label `tf-serving.models`, "
            "which a pool with several sets, or `tf-serving.models-folder`. On Kubernetes, models that "
            "compute on several GPUs: `tf-serving.multi-gpu: 'true'`."
        ),
        levels=EVERYWHERE,
        check=check,
    ),
)
