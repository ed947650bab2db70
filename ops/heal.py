"""`make heal`: brings state and engines back together after a run that was killed.

Pulumi writes down what it has made. What it made and could not write down is found by our labels, removed,
and made again by the next `up`; so is what it left half made, which a refresh alone would make look whole.
Nothing without the stack's own label is touched.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ops import docker_host, labels, nodes, setup
from ops.errors import UserError
from ops.hosts import Host
from ops.stack import Stack
from ops.state import local_backend
from toolchain.progress import note

# Containers go first: a network or a volume with a container on it cannot be removed. The id of a volume is
# its name, in the state too.
_KINDS = {
    "container": (
        ["ps", "--all", "--no-trunc"],
        f'{{{{.ID}}}} {{{{.Names}}}} {{{{.State}}}} {{{{.Label "{labels.ROLE}"}}}}',
        ["rm", "--force", "--volumes"],
    ),
    "network": (["network", "ls", "--no-trunc"], "{{.ID}} {{.Name}}", ["network", "rm"]),
    "volume": (["volume", "ls"], "{{.Name}} {{.Name}}", ["volume", "rm"]),
}
_NOT_RUNNING = ("created", "exited", "dead")


_Exported = Mapping[str, Mapping[str, Iterable[Mapping[str, str]]]]


@dataclass(frozen=True)
class Stray:
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
        return self.state in _NOT_RUNNING and (self.role, self.state) != (labels.PUBLISHER, "exited")

    def __str__(self) -> str:
        return f"{self.kind} {self.name} on node {self.node}"


def heal(stack: str, arguments: Sequence[str]) -> int:
    """Remove what the state does not know and what is half made, then have the state match what is there."""
    unknown = [argument for argument in arguments if argument != "--yes"]
    if unknown:
        raise UserError(f"accepts ARGS=--yes (do not ask), not {' '.join(unknown)}")
    if stack == setup.LOCAL_STACK:
        engine = docker_host.ensure_engine().docker_host
        setup.ensure_tools()
        local = setup.cli(stack, {"DOCKER_HOST": engine}, backend=local_backend())
        local.ensure_exists()
        return reconcile(local, nodes.hosts_of(stack, engine), ask=False)
    team = setup.team_stack(stack, changes=True)
    note(f"If Pulumi says that a run which is gone holds the lock: pulumi cancel --stack {stack}")
    return reconcile(team, nodes.hosts_of(stack), ask="--yes" not in arguments)


def reconcile(stack: Stack, hosts: Mapping[str, Host], *, ask: bool) -> int:
    """Free stale locks of a backend of ours, remove strays, refresh; the exit code of the refresh."""
    stack.free_stale_locks()
    exported = json.loads(stack.query("stack", "export"))
    known, whole = _known(exported), _known(exported, whole=True)
    there = labelled(stack.name, hosts)
    if any(one.kind == "container" for one in there) and not any(one.id in known for one in there):
        raise UserError(_another_state(stack, there, "knows none of them" if known else "is empty"))
    found = [one for one in there if one.id not in whole or one.ended]
    for stray in found:
        note(f"Unknown to the state, half made or not running: {stray}")
    if found and ask and not _agreed(len(found)):
        raise UserError("nothing was changed")
    for stray in found:
        _remove(stray)
    unasked = [] if ask else ["--yes", "--skip-preview"]
    code = stack.run("refresh", *unasked, "--clear-pending-creates")
    if code == 0:
        note(f"{len(found)} removed, the state is refreshed. `make up STACK={stack.name}` makes the rest.")
    return code


def labelled(stack: str, hosts: Mapping[str, Host]) -> list[Stray]:
    """What has the stack's label, a container also its node's; containers come before the rest."""
    found = [
        Stray(node, host, kind, *line.split())
        for kind in _KINDS
        for node, host in hosts.items()
        for line in _listed(kind, stack, node, host)
    ]
    # Networks have no node's label, so two nodes of one engine both list them.
    return list({(one.kind, one.id): one for one in reversed(found)}.values())[::-1]


def _known(exported: _Exported, *, whole: bool = False) -> frozenset[str]:
    """Ids of what the state says is on the nodes, or (`whole`) of what was made there without an error."""
    resources = (exported.get("deployment") or {}).get("resources") or []
    real = [one for one in resources if not one.get("type", "").startswith("pulumi:providers:")]
    made = [one for one in real if "id" in one and not (whole and one.get("initErrors"))]
    return frozenset(one["id"] for one in made)


def _another_state(stack: Stack, found: Sequence[Stray], state: str) -> str:
    """Why nothing is removed: a killed run has its networks in the state before its first container.

    A state that knows nothing beside containers is another one than theirs.
    """
    containers = [one for one in found if one.kind == "container"]
    running = sum(one.state == "running" for one in containers)
    several = "1 container" if len(containers) == 1 else f"{len(containers)} containers"
    nodes = ", ".join(dict.fromkeys(one.node for one in containers))
    head = (
        f"Stack {stack.name} has {several} on node {nodes}, {running} running, and its state {state}: "
        "it looks like another state than theirs. Nothing was removed."
    )
    if stack.backend is None:
        look = f"make pulumi STACK={stack.name} ARGS='whoami -v'"
        return (
            f"{head}\nCheck that the backend is the one they were made with: `pulumi whoami -v`, or `{look}`."
        )
    by_hand = "".join(f"\n  docker --host {one.host.endpoint} rm --force {one.name}" for one in containers)
    return (
        f"{head}\nPut their state back into {stack.backend.state}. If it is gone for good, remove them by "
        f"hand and type `make heal` again:{by_hand}"
    )


def _listed(kind: str, stack: str, node: str, host: Host) -> list[str]:
    command, form, _ = _KINDS[kind]
    chosen = labels.filters(stack, None if kind == "network" else node)
    answer = host.docker(*command, *chosen, "--format", form)
    if answer.code != 0:
        raise UserError(f"node {node} ({host.endpoint}): {answer.said}; nothing was changed")
    return answer.stdout.splitlines()


def _agreed(count: int) -> bool:
    try:
        return input(f"Remove these {count}? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _remove(stray: Stray) -> None:
    answer = stray.host.docker(*_KINDS[stray.kind][2], stray.id)
    if answer.code != 0:
        raise UserError(f"{stray} cannot be removed: {answer.said}")
    note(f"Removed: {stray}")
