"""`make heal`: brings state and engines back together after a run that was killed.

Pulumi writes down what it has made. What it made and could not write down is found by our labels, removed,
and made again by the next `up`; so is what it left half made, which a refresh alone would make look whole.
Nothing without the stack's own label is touched.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ops import docker_host, nodes, setup
from ops.errors import UserError
from ops.hosts import Host
from ops.stack import Stack
from ops.state import local_backend
from toolchain.progress import note

# Containers go first: a network with a container on it cannot be removed.
_KINDS = {
    "container": (["ps", "--all"], "{{.ID}} {{.Names}} {{.State}}", ["rm", "--force", "--volumes"]),
    "network": (["network", "ls"], "{{.ID}} {{.Name}} there", ["network", "rm"]),
    "volume": (["volume", "ls"], "{{.Name}} {{.Name}} there", ["volume", "rm"]),
}
_NOT_RUNNING = ("created", "exited", "dead")


@dataclass(frozen=True)
class Stray:
    """Something of the stack's on a node that its state does not know, or knows as more than it is."""

    node: str
    host: Host
    kind: str
    id: str
    name: str
    state: str

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
    found = strays(stack, hosts)
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


def strays(stack: Stack, hosts: Mapping[str, Host]) -> list[Stray]:
    """What has the stack's and a node's label and is not whole in the state; containers before networks."""
    whole = _whole(json.loads(stack.query("stack", "export")))
    found = [
        Stray(node, host, kind, *line.split())
        for kind in _KINDS
        for node, host in hosts.items()
        for line in _listed(kind, stack.name, node, host)
    ]
    return [stray for stray in found if stray.id not in whole or stray.state in _NOT_RUNNING]


def _whole(exported: Mapping[str, Mapping[str, Iterable[Mapping[str, str]]]]) -> frozenset[str]:
    """Ids of what was made without an error."""
    resources = (exported.get("deployment") or {}).get("resources") or []
    return frozenset(
        resource["id"] for resource in resources if "id" in resource and not resource.get("initErrors")
    )


def _listed(kind: str, stack: str, node: str, host: Host) -> list[str]:
    command, form, _ = _KINDS[kind]
    labels = {"tf-serving.stack": stack, "tf-serving.node": node}
    chosen = [f"--filter=label={label}={value}" for label, value in labels.items()]
    whole = [] if kind == "volume" else ["--no-trunc"]
    answer = host.docker(*command, *whole, *chosen, "--format", form)
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
