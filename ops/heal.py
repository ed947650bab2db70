"""`make heal`: brings state and engines back together after a run that was killed.

Pulumi writes down what it has made. What it made and could not write down is found by our labels, removed,
and made again by the next `up`; so is what it left half made, which a refresh alone would make look whole.
Nothing without the stack's own label is touched.
"""

import json
from collections.abc import Mapping, Sequence

from ops import docker_host, nodes, setup
from ops.errors import UserError
from ops.hosts import Host
from ops.labelled import Labelled, State, labelled_after_a_kill, remove
from ops.stack import Stack
from ops.state import local_backend
from toolchain.progress import note


def heal(stack: str, arguments: Sequence[str]) -> int:
    """Remove what the state does not know and what is half made, then have the state match what is there."""
    unknown = [argument for argument in arguments if argument != "--yes"]
    if unknown:
        raise UserError(f"accepts ARGS=--yes (do not ask), not {' '.join(unknown)}")
    if stack == setup.LOCAL_STACK:
        setup.require_stack_file(stack)
        engine = docker_host.ensure_engine().docker_host
        setup.ensure_tools()
        local = setup.cli(stack, {"DOCKER_HOST": engine}, backend=local_backend())
        local.free_stale_locks()
        local.ensure_exists()
        return reconcile(local, nodes.hosts_of(stack, engine), ask=False)
    team = setup.team_stack(stack, changes=True)
    note(f"If Pulumi says that a run which is gone holds the lock: pulumi cancel --stack {stack}")
    return reconcile(team, nodes.hosts_of(stack), ask="--yes" not in arguments)


def reconcile(stack: Stack, hosts: Mapping[str, Host], *, ask: bool) -> int:
    """Free stale locks of a backend of ours, remove strays, refresh; the exit code of the refresh."""
    stack.free_stale_locks()
    state = State(json.loads(stack.query("stack", "export")).get("deployment") or {})
    there = labelled_after_a_kill(stack.name, hosts, state)
    if any(one.kind == "container" for one in there) and not any(one.id in state.known for one in there):
        raise UserError(_another_state(stack, there, "knows none of them" if state.known else "is empty"))
    found = [one for one in there if one.id not in state.whole or one.ended]
    for stray in found:
        note(f"Unknown to the state, half made or not running: {stray}")
    if found and ask and not _agreed(len(found)):
        raise UserError("nothing was changed")
    for stray in found:
        remove(stray)
    unasked = [] if ask else ["--yes", "--skip-preview"]
    code = stack.run("refresh", *unasked, "--clear-pending-creates")
    if code == 0:
        note(f"{len(found)} removed, the state is refreshed. `make up STACK={stack.name}` makes the rest.")
    return code


def _another_state(stack: Stack, found: Sequence[Labelled], state: str) -> str:
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


def _agreed(count: int) -> bool:
    try:
        return input(f"Remove these {count}? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
