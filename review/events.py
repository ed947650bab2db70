"""Reads what a preview told: its steps, what policies said, and a state in which all of it were made."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

Value = Any
"""JSON: what Pulumi writes of a resource."""
Event = Mapping[str, Value]

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""How Pulumi writes a value that is known only once the resource exists."""
_BLANK = "[secret]"
"""How it shows one that is secret."""
_SEALED = "4dabf18193072939515e22adb298388d"
"""The key by which an object is known to hold a secret."""
MADE = "made"
"""What stands in for such a value in the state of a stack that nobody deployed."""
_OPERATIONS = ("create", "update", "replace", "delete")
# What an engine would have answered where a text will not do. Without `networkDatas` a container counts as
# one that never became healthy (components/container.py).
_ANSWERED: Mapping[str, Value] = {
    "exitCode": 0,
    "options": {},
    "networkDatas": [
        {
            "networkName": MADE,
            "ipAddress": MADE,
            "ipPrefixLength": 24,
            "gateway": MADE,
            "globalIpv6Address": "",
            "globalIpv6PrefixLength": 0,
            "ipv6Gateway": "",
            "macAddress": MADE,
        }
    ],
}


@dataclass(frozen=True, kw_only=True)
class Step:
    """What happens to one resource: create, update (in place), replace or delete.

    `because` names the inputs for which the provider replaces it; empty where it follows another resource.
    """

    operation: str
    name: str
    type: str
    old: Mapping[str, Value]
    new: Mapping[str, Value]
    because: Sequence[str] = ()

    @property
    def labels(self) -> dict[str, str]:
        """The resource's labels, new ones before old ones."""
        if metadata := (self.new or self.old).get("metadata"):  # of Kubernetes
            return dict(metadata.get("labels") or {})
        labels = self.new.get("labels") or self.old.get("labels") or ()
        return {one["label"]: one["value"] for one in labels if isinstance(one, Mapping) and "label" in one}


@dataclass(frozen=True, order=True)
class Violation:
    """What a policy refuses; `level` is advisory or mandatory."""

    level: str
    policy: str
    resource: str
    message: str


def read_log(log: Path) -> list[Event]:
    """What a run told in its `--event-log`; nothing where it did not begin, no line that a kill cut off."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    events = []
    for line in lines:
        with suppress(ValueError):
            events.append(json.loads(line))
    return events


def steps(events: Iterable[Event]) -> list[Step]:
    """The steps of a preview but those of components, which are no more than their parts."""
    found = (event["resourcePreEvent"]["metadata"] for event in events if "resourcePreEvent" in event)
    return [
        Step(
            operation=one["op"],
            name=name_of(one["urn"]),
            type=one["type"],
            old=_inputs(one.get("old")),
            new=_inputs(one.get("new")),
            because=tuple(sorted(one.get("keys") or ())),
        )
        for one in found
        if one["op"] in _OPERATIONS and (one.get("new") or one.get("old") or {}).get("custom")
    ]


def violations(events: Iterable[Event]) -> list[Violation]:
    """What the policy packs said, each thing once."""
    said = (event["policyEvent"] for event in events if "policyEvent" in event)
    return sorted(
        {
            Violation(
                one["enforcementLevel"],
                one["policyName"],
                name_of(one.get("resourceUrn", "")) or "the stack",
                one["message"].strip(),
            )
            for one in said
        }
    )


def rules(events: Iterable[Event]) -> frozenset[str]:
    """The policies that judged something: none where no pack was there, or none of it worked."""
    kinds = ("policyAnalyzeSummaryEvent", "policyAnalyzeStackSummaryEvent")
    said = (event[kind] for event in events for kind in kinds if kind in event)
    return frozenset(rule for one in said for how in ("passed", "failed") for rule in one.get(how) or ())


def errors(events: Iterable[Event]) -> list[str]:
    """What Pulumi and the program called an error."""
    said = (event["diagnosticEvent"] for event in events if "diagnosticEvent" in event)
    return [one["message"].strip() for one in said if one["severity"] == "error"]


def stack_outputs(events: Iterable[Event]) -> Mapping[str, Value]:
    """The outputs that other teams read."""
    outputs: Mapping[str, Value] = {}
    for event in events:
        told = event.get("resOutputsEvent", {}).get("metadata", {})
        if told.get("type") == "pulumi:pulumi:Stack":
            outputs = (told.get("new") or {}).get("outputs") or outputs
    return outputs


def name_of(urn: str) -> str:
    """A resource's own name."""
    return urn.rpartition("::")[2]


def deployment(
    document: Mapping[str, Value], events: Iterable[Event], plan: Mapping[str, Value]
) -> dict[str, Value]:
    """A state, for `pulumi stack import`, in which all that a preview from nothing planned is made.

    `document` is what `--json` printed, `events` the same run's log: only that one has the planned outputs,
    with the provider's own defaults, without which each later preview would find something to change. Neither
    has what is secret; `plan` does, which `--save-plan --show-secrets` wrote.
    """
    goals = {urn: one.get("goal") or {} for urn, one in plan.get("resourcePlans", {}).items()}
    inputs = {urn: goal.get("inputDiff", {}).get("adds") or {} for urn, goal in goals.items()}
    outputs: dict[str, Value] = {}
    for event in events:
        if told := event.get("resOutputsEvent", {}).get("metadata"):
            outputs[told["urn"]] = (told.get("new") or {}).get("outputs") or {}
    states = [step["newState"] for step in document["steps"] if "newState" in step]
    resources = [_resource(_revealed(state, inputs), outputs) for state in states]
    manifest = {"time": "2000-01-01T00:00:00Z", "magic": "", "version": ""}
    return {"version": 3, "deployment": {"manifest": manifest, "resources": resources}}


def _revealed(state: Mapping[str, Value], inputs: Mapping[str, Value]) -> Mapping[str, Value]:
    """A planned state with the values of its secret inputs, as if nobody had called them secret."""
    given, known = state.get("inputs") or {}, inputs.get(state["urn"], {})
    shown = {name: _opened(known[name]) if _hides(value) else value for name, value in given.items()}
    return {**state, "inputs": shown}


def _hides(value: Value) -> bool:
    """Whether anything in it is blanked out."""
    if isinstance(value, Mapping):
        return any(_hides(child) for child in value.values())
    if isinstance(value, list):
        return any(_hides(child) for child in value)
    return bool(value == _BLANK)


def _opened(value: Value) -> Value:
    if isinstance(value, Mapping):
        if _SEALED in value:
            return json.loads(value["plaintext"])
        return {name: _opened(child) for name, child in value.items()}
    if isinstance(value, list):
        return [_opened(child) for child in value]
    return value


def _resource(planned: Mapping[str, Value], outputs: Mapping[str, Value]) -> dict[str, Value]:
    known = ("sourcePosition", "stackTrace")
    state = {key: _made(key, value) for key, value in planned.items() if key not in known}
    if not state.get("custom"):
        return state
    state["id"] = MADE
    planned_outputs = outputs.get(planned["urn"], {})
    # An empty list that was given is planned as unknown: an engine could have filled it in.
    unseen = {name for name, value in planned_outputs.items() if value == UNKNOWN or _hides(value)}
    given = {name: value for name, value in _inputs(planned).items() if name in unseen}
    state["outputs"] = _made("outputs", {**planned_outputs, **given})
    if "provider" in state:
        state["provider"] = f"{planned['provider'].rpartition('::')[0]}::{MADE}"
    return state


def _made(key: str, value: Value) -> Value:
    if value == UNKNOWN:
        return _ANSWERED.get(key, MADE)
    if isinstance(value, Mapping):
        return {name: _made(name, child) for name, child in value.items()}
    if isinstance(value, list):
        return [_made(key, child) for child in value]
    return value


def _inputs(state: Mapping[str, Value] | None) -> Mapping[str, Value]:
    return cast("Mapping[str, Value]", without_defaults((state or {}).get("inputs") or {}))


def without_defaults(value: Value) -> Value:
    """A value without the names of what the provider filled in."""
    if isinstance(value, Mapping):
        return {name: without_defaults(child) for name, child in _shown(value)}
    return [without_defaults(child) for child in value] if isinstance(value, list) else value


def _shown(value: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    return ((name, child) for name, child in value.items() if name not in ("__defaults", "__internal"))
