"""How Kubernetes replaces pods and changes their number: of Deployments and the like, and of autoscalers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pack.kubernetes import kind
from pack.reading import Reader, Unread
from pack.resource import Resource

_KINDS = ("Deployment", "StatefulSet", "DaemonSet")


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """`strategy` is RollingUpdate, Recreate or OnDelete; `surge` and `unavailable` are pods.

    `replicas` is None where the program leaves them out, as with an autoscaler.
    """

    resource: Resource
    name: str
    kind: str
    strategy: str
    surge: int
    surge_text: str
    unavailable: int
    unavailable_text: str
    replicas: int | None
    progress_deadline_s: float
    unread: Mapping[str, tuple[Unread, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Autoscaler:
    """A HorizontalPodAutoscaler, and what it scales (`target`: kind and name)."""

    resource: Resource
    name: str
    target: tuple[str, str]
    least: int
    most: int
    unread: Mapping[str, tuple[Unread, ...]] = field(default_factory=dict)


def rollout(resource: Resource) -> Rollout | None:
    """The view of a Deployment, StatefulSet or DaemonSet, or None for other resources."""
    found = kind(resource.type)
    if found not in _KINDS:
        return None
    reader = Reader()
    spec = reader.mapping(resource.props.get("spec"), "spec", "strategy")
    section = "strategy" if found == "Deployment" else "updateStrategy"
    strategy = reader.mapping(spec.get(section), f"spec.{section}", "strategy")
    rolling = reader.mapping(strategy.get("rollingUpdate"), f"spec.{section}.rollingUpdate", "strategy")
    given = reader.whole(spec.get("replicas"), "spec.replicas", "replicas")
    replicas = 1 if given is None else given
    # What Kubernetes takes where nothing is said: a Deployment makes the new pods first.
    default = ("25%", "25%") if found == "Deployment" else ("0", "1")

    def said(name: str, otherwise: str) -> str:
        at = f"spec.{section}.rollingUpdate.{name}"
        return reader.text(rolling.get(name), at, "strategy") or otherwise

    surge, unavailable = said("maxSurge", default[0]), said("maxUnavailable", default[1])
    deadline = reader.number(spec.get("progressDeadlineSeconds"), "spec.progressDeadlineSeconds", "probe")
    return Rollout(
        resource=resource,
        name=_name(reader, resource),
        kind=found,
        strategy=reader.text(strategy.get("type"), f"spec.{section}.type", "strategy") or "RollingUpdate",
        surge=_pods(reader, surge, replicas, f"spec.{section}.rollingUpdate.maxSurge", up=True),
        surge_text=surge,
        unavailable=_pods(
            reader, unavailable, replicas, f"spec.{section}.rollingUpdate.maxUnavailable", up=False
        ),
        unavailable_text=unavailable,
        replicas=given,
        progress_deadline_s=600 if deadline is None else deadline,
        unread={name: tuple(unread) for name, unread in reader.unread.items()},
    )


def autoscaler(resource: Resource) -> Autoscaler | None:
    """The view of a HorizontalPodAutoscaler, or None for other resources."""
    if kind(resource.type) != "HorizontalPodAutoscaler":
        return None
    reader = Reader()
    spec = reader.mapping(resource.props.get("spec"), "spec", "replicas")
    target = reader.mapping(spec.get("scaleTargetRef"), "spec.scaleTargetRef", "target")
    least = reader.whole(spec.get("minReplicas"), "spec.minReplicas", "replicas")
    most = reader.whole(spec.get("maxReplicas"), "spec.maxReplicas", "replicas")
    return Autoscaler(
        resource=resource,
        name=_name(reader, resource),
        target=(
            reader.text(target.get("kind"), "spec.scaleTargetRef.kind", "target") or "",
            reader.text(target.get("name"), "spec.scaleTargetRef.name", "target") or "",
        ),
        least=1 if least is None else least,
        most=0 if most is None else most,
        unread={name: tuple(unread) for name, unread in reader.unread.items()},
    )


def _name(reader: Reader, resource: Resource) -> str:
    metadata = reader.mapping(resource.props.get("metadata"), "metadata", "name")
    return reader.text(metadata.get("name"), "metadata.name", "name") or resource.name


def _pods(reader: Reader, text: str, replicas: int, path: str, *, up: bool) -> int:
    """A number of pods, or a share of them: a surge is rounded up, what may be missing is rounded down."""
    share = text.removesuffix("%")
    if not share.isdecimal():
        reader.odd(text, path, "strategy", "a number of pods or a percentage")
        return 0
    if share == text:
        return int(text)
    pods = replicas * int(share) / 100
    return math.ceil(pods) if up else math.floor(pods)
