"""Whoever finds a container on a machine can tell from its labels whose it is and what it serves."""

import re
from collections.abc import Iterator, Mapping

from pack.rule import Finding, Params, Rule, about, unread
from pack.stack import Stack
from pack.workload import LABEL, Workload

NAME = "required-labels"
_PLAIN = "give labels as plain values: whoever meets the container asks them, and so do other rules"
_OF_ALL = {"stack": "the stack that made it", "owner": "the team to ask"}
_OF_SERVERS = {"pool": "the pool of equal servers that it belongs to", "models": "what it serves: a,b"}
_SLOT = {"slot": "the part of the node that it owns: gpu0, gpu1-mig2"}
_SLOTS = re.compile(r"gpu\d+(-mig\d+)?(,gpu\d+(-mig\d+)?)*")
_SAYS_NOTHING = re.compile(r"(?i)(todo|tbd|fixme|unknown|none|null|n/?a|change[-_]?me|-+|\?+|x{2,}|<.*>)$")


def check(stack: Stack, params: Params) -> Iterator[Finding]:
    """Every container; a model server says the most."""
    for workload in stack.workloads:
        if workload.is_exempt_from(NAME):
            continue
        yield from unread(workload, "labels", "Label", _PLAIN)
        # Where some could not be read, one of them may be what seems to lack.
        if not workload.unread.get("labels"):
            for name, meaning in _required(workload).items():
                yield from _label(workload, f"{LABEL}{name}", workload.label(name), meaning)
            for name in params.texts("alsoRequired"):
                yield from _label(workload, name, workload.labels.get(name), "this organization asks for it")
            yield from _slot(workload)


def _required(workload: Workload) -> Mapping[str, str]:
    if not workload.is_server:
        return _OF_ALL
    # Kubernetes itself picks the GPU of a pod.
    required = {**_OF_ALL, **_OF_SERVERS, **({} if workload.target == "kubernetes" else _SLOT)}
    if (workload.label("models-folder") or "").strip():
        del required["models"]  # from a folder they come and go under a server that runs
    return required


def _label(workload: Workload, name: str, value: str | None, meaning: str) -> Iterator[Finding]:
    if value is None:
        yield about(workload, f"label {name}: unset", f"{_set(workload, name)}: {meaning}")
    elif not value.strip() or _SAYS_NOTHING.match(value.strip()):
        yield about(workload, f"label {name}: {value!r}: says nothing", f"{_set(workload, name)}: {meaning}")


def _slot(workload: Workload) -> Iterator[Finding]:
    slot = workload.label("slot")
    if workload.is_server and slot and not _SLOTS.fullmatch(slot) and not _SAYS_NOTHING.match(slot):
        what = f"label {LABEL}slot: {slot}: names no slot"
        yield about(workload, what, "write gpu<index>, gpu<index>-mig<position>, or several with commas")


def _set(workload: Workload, name: str) -> str:
    where = "the pod template's labels or annotations" if workload.target == "kubernetes" else "labels"
    return f"set {name} in {where}"


RULES = (
    Rule(
        name=NAME,
        scope="resource",
        protects="Labels alone tell what a container serves, where, and whom to ask about it",
        severity="low",
        steps=(
            "Label every container with tf-serving.stack and tf-serving.owner, and a model server "
            "also with tf-serving.pool, tf-serving.models (or tf-serving.models-folder, where they come from "
            "a folder and change while it runs) and (Docker) tf-serving.slot. On "
            "Kubernetes annotations do as well."
        ),
        why=(
            "https://github.com/NVIDIA/dcgm-exporter/issues/138",
            "https://github.com/kubernetes-retired/dashboard/issues/878",
        ),
        exempt="What is no model server, by the label `tf-serving.exempt: required-labels`.",
        levels={"local": "advisory", "staging": "mandatory", "prod": "mandatory"},
        check=check,
        schema={
            "alsoRequired": {
                "type": "array",
                "items": {"type": "string"},
                "default": [],
                "description": "further labels that every container must carry, such as `cost-center`",
            }
        },
    ),
)
