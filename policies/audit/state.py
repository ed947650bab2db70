"""Resources of a stack's state, as `pulumi stack export` prints it: secrets stay encrypted."""

import json
from collections.abc import Mapping
from typing import Any

from pack.plain import SECRET, UNKNOWN, plain
from pack.resource import Provider, Resource

from audit.errors import AuditError

# What Pulumi puts into a value of its own (a secret, a file), with the kind beside it.
_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a mark, no secret


def resources_of_state(text: str) -> tuple[Resource, ...]:
    """Every resource of an export, in its order, those that wait for deletion too. Raises AuditError."""
    exported = _exported(text)
    inputs = {str(one.get("urn")): _properties(one.get("inputs")) for one in exported}
    return tuple(_resource(one, inputs) for one in exported)


def _exported(text: str) -> list[Mapping[str, Any]]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise AuditError(f"the state is no JSON ({error}): `pulumi stack export` prints it") from None
    deployment = document.get("deployment") if isinstance(document, dict) else None
    if not isinstance(deployment, dict):
        raise AuditError("the state has no `deployment`: `pulumi stack export` prints one that has")
    found = deployment.get("resources") or []
    if not isinstance(found, list) or not all(isinstance(one, dict) and one.get("urn") for one in found):
        raise AuditError("deployment.resources: is no list of resources, each with a urn")
    return found


def _resource(one: Mapping[str, Any], inputs: Mapping[str, dict[str, object]]) -> Resource:
    urn = str(one["urn"])
    return Resource(
        type=str(one.get("type", "")),
        urn=urn,
        name=urn.rpartition("::")[2],
        props=inputs[urn],
        provider=_provider(str(one.get("provider") or ""), inputs),
        parent=one.get("parent"),
        depends_on=tuple(str(dependency) for dependency in one.get("dependencies") or ()),
        # A state does not keep this option: what it cannot tell is no finding.
        delete_before_replace=True,
        protect=bool(one.get("protect")),
        ignore_changes=tuple(str(path) for path in one.get("ignoreChanges") or ()),
    )


def _provider(reference: str, inputs: Mapping[str, dict[str, object]]) -> Provider | None:
    """The provider of a reference, `<urn>::<id>`."""
    urn = reference.rpartition("::")[0]
    if not urn:
        return None
    return Provider(urn=urn, type=urn.split("::")[-2].rpartition("$")[2], props=inputs.get(urn, {}))


def _properties(value: object) -> dict[str, object]:
    return {name: _read(item) for name, item in value.items()} if isinstance(value, dict) else {}


def _read(value: object) -> object:
    """Plain values, with SECRET for what is encrypted, and for a secret that was exported in the open."""
    if isinstance(value, dict):
        if _SIGNATURE in value:
            return SECRET if value[_SIGNATURE] == _SECRET else UNKNOWN
        return _properties(value)
    return [_read(item) for item in value] if isinstance(value, list) else plain(value)
