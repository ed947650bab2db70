"""What is on the engines with a stack's label, beside what the stack's state says is there.

Nothing without the stack's own label is ever seen here, or removed.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ops import labels
from ops.errors import UserError
from ops.hosts import Host
from toolchain.progress import note


@dataclass(frozen=True)
class _Kind:
    type: str  # Pulumi's
    listed: tuple[str, ...]
    shown: str
    removed: tuple[str, ...]


# Containers go first: a network or a volume with a container on it cannot be removed. The id of a volume is
# its name, in the state too.
_KINDS = {
    "container": _Kind(
        "docker:index/container:Container",
        ("ps", "--all", "--no-trunc"),
        f'{{{{.ID}}}} {{{{.Names}}}} {{{{.State}}}} {{{{.Label "{labels.ROLE}"}}}}',
        ("rm", "--force", "--volumes"),
    ),
    "network": _Kind(
        "docker:index/network:Network",
        ("network", "ls", "--no-trunc"),
        "{{.ID}} {{.Name}}",
        ("network", "rm"),
    ),
    "volume": _Kind("docker:index/volume:Volume", ("volume", "ls"), "{{.Name}} {{.Name}}", ("volume", "rm")),
}
_NOT_RUNNING = ("created", "exited", "dead")
# An engine goes on with what a client that is gone has asked for; a network takes it a second or two.
_ENGINE_FINISHES_S = 10.0


@dataclass(frozen=True)
class Labelled:
    """Something with the stack's label on a node; `state` and `role` are a container's."""

    node: str
    host: Host
    kind: str
    id: str
    name: str
    state: str = ""
    role: str = ""

    @property
    def ended(self) -> bool:
        """Whether it should run and does not. A publisher ends; one that failed is not whole in the state."""
        well = self.role in labels.ENDING and self.state == "exited"
        return self.state in _NOT_RUNNING and not well

    def __str__(self) -> str:
        return f"{self.kind} {self.name} on node {self.node}"


@dataclass(frozen=True)
class State:
    """A stack's deployment as Pulumi writes it down, in a state file or in an export."""

    deployment: Mapping[str, Any]

    @property
    def known(self) -> frozenset[str]:
        """Ids of all that was made on the nodes."""
        return frozenset(one["id"] for one in self._made())

    @property
    def whole(self) -> frozenset[str]:
        """Ids of what was made there without an error."""
        return frozenset(one["id"] for one in self._made() if not one.get("initErrors"))

    @property
    def half_made(self) -> frozenset[tuple[str, str]]:
        """Kind and name of what was being made when the last run ended."""
        kinds = {kind.type: name for name, kind in _KINDS.items()}
        operations = self.deployment.get("pending_operations") or []
        begun = [one["resource"] for one in operations if one.get("type") == "creating"]
        return frozenset(
            (kinds[one["type"]], one["inputs"]["name"])
            for one in begun
            if one.get("type") in kinds and "name" in one.get("inputs", {})
        )

    def _made(self) -> list[Mapping[str, Any]]:
        resources = self.deployment.get("resources") or []
        return [
            one
            for one in resources
            if "id" in one and not one.get("type", "").startswith("pulumi:providers:")
        ]


def labelled(stack: str, hosts: Mapping[str, Host]) -> list[Labelled]:
    """What has the stack's label, a container also its node's; containers come before the rest."""
    found = [one for kind in _KINDS for node, host in hosts.items() for one in _of(kind, stack, node, host)]
    # Networks have no node's label, so two nodes of one engine both list them.
    return list({(one.kind, one.id): one for one in reversed(found)}.values())[::-1]


def labelled_after_a_kill(stack: str, hosts: Mapping[str, Host], state: State) -> list[Labelled]:
    """What has the stack's label, once the engines have made what they were asked for before the kill.

    What is not there after some seconds was never asked for.
    """
    deadline = time.monotonic() + _ENGINE_FINISHES_S
    while True:
        found = labelled(stack, hosts)
        if state.half_made <= {(one.kind, one.name) for one in found} or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def remove(one: Labelled) -> None:
    """Remove it by its id; raises UserError where that cannot be done."""
    answer = one.host.docker(*_KINDS[one.kind].removed, one.id)
    if answer.code != 0:
        raise UserError(f"{one} cannot be removed: {answer.said}")
    note(f"Removed: {one}")


def _of(kind: str, stack: str, node: str, host: Host) -> Iterator[Labelled]:
    chosen = labels.filters(stack, None if kind == "network" else node)
    answer = host.docker(*_KINDS[kind].listed, *chosen, "--format", _KINDS[kind].shown)
    if answer.code != 0:
        raise UserError(f"node {node} ({host.endpoint}): {answer.said}; nothing was changed")
    for line in answer.stdout.splitlines():
        yield Labelled(node, host, kind, *line.split())
