"""What a change of an object on Kubernetes means for requests (docs/kubernetes.md)."""

from collections.abc import Mapping
from typing import cast

from review.changes import changes
from review.events import Step, Value

_PODS = ("Deployment", "StatefulSet")
_OTHERS: Mapping[tuple[str, str], str] = {
    ("ConfigMap", "create"): "files for pods",
    ("ConfigMap", "update"): "in place: pods that run read it again",
    (
        "ConfigMap",
        "replace",
    ): "under a new name: the pods that read it are replaced, each by one that reads the new",
    ("Service", "replace"): "its address changes: nobody finds what is behind it until it is back",
    ("Service", "update"): "in place",
    ("Service", "delete"): "nobody finds what is behind it any more",
    (
        "HorizontalPodAutoscaler",
        "update",
    ): "how many pods there are follows the new numbers; nothing restarts",
    ("PodDisruptionBudget", "update"): "how many pods a drain may take; nothing restarts",
    ("NetworkPolicy", "create"): "from now on only who is named may connect",
    ("NetworkPolicy", "update"): "who may connect, at once: connections of others end",
    ("NetworkPolicy", "delete"): "everybody in the cluster may connect",
    ("Namespace", "replace"): "everything in it goes first: nothing answers until it is back",
    ("Namespace", "delete"): "everything in it is gone",
}


def meaning(step: Step) -> str:
    """One sentence; steps that mean the same give the same one."""
    kind = step.type.rpartition(":")[2]
    if step.labels.get("tf-serving.role") == "acceptance":
        return "asks until pods have what they were told, and serves no request"
    if kind not in _PODS:
        if step.operation == "update" and all(path.startswith("metadata.") for path in _differing(step)):
            return "in place: labels alone"
        return _OTHERS.get((kind, step.operation), "")
    name = _name(step)
    match step.operation:
        case "create":
            return f"{name} gets {_count(step.new)}"
        case "delete":
            return f"{name} answers nothing any more"
        case "replace":
            return f"all pods go first: {name} answers nothing until new ones are ready"
        case _:
            return _update(step, name)


def _name(step: Step) -> str:
    pool = step.labels.get("tf-serving.pool")
    return f"pool {pool}" if pool else "the front end"


def _update(step: Step, name: str) -> str:
    differing = _differing(step)
    said = []
    if any(path.startswith("spec.template") for path in differing):
        said.append(_rolls(step.new["spec"], name))
    if "spec.replicas" in differing:
        before, after = _replicas(step.old), _replicas(step.new)
        if before and after:
            said.append(f"{name} {'grows' if after > before else 'shrinks'} from {before} to {after}")
        else:
            said.append(
                f"{name}: {'an autoscaler owns' if before else 'no autoscaler owns'} the number of pods now"
            )
    return "; ".join(said) or f"in place: {name} goes on serving"


def _differing(step: Step) -> list[str]:
    return [change.path for change in changes(step.old, step.new)]


def _rolls(spec: Mapping[str, Value], name: str) -> str:
    """What is left while every pod is replaced."""
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    if rolling.get("maxSurge"):
        return f"rolls: a new pod of {name} is ready before an old one goes"
    count = spec.get("replicas")
    if count == 1:
        return f"rolls: {name} has no other pod, and answers nothing until the new one has loaded its models"
    left = f"with {count - 1} of {count}" if count else "with one pod less"
    return f"rolls one pod at a time: {name} serves {left}"


def _replicas(manifest: Mapping[str, Value]) -> int | None:
    return cast("int | None", manifest["spec"].get("replicas"))


def _count(manifest: Mapping[str, Value]) -> str:
    count = _replicas(manifest)
    return f"{count} pods" if count else "as many pods as its autoscaler asks for"
