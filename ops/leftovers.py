"""What a killed `make up` left in the local stack's engine: made there, and not yet in the state.

Pulumi notes what it is about to create, and what it has created. A kill between the two leaves a container
under a name that the next `up` wants for its own.
"""

from collections.abc import Callable, Mapping

from ops.hosts import Host
from ops.labelled import State, labelled_after_a_kill, remove
from ops.stack import Stack
from ops.state import latest_deployment
from toolchain.progress import note


def clear(stack: Stack, hosts: Callable[[], Mapping[str, Host]]) -> None:
    """Remove what was half made, where it is labelled as this stack's, and drop it from the state.

    `hosts` is asked only where there is any.
    """
    if stack.backend is None:
        return
    for checkpoint in stack.backend.state.glob(f".pulumi/stacks/*/{stack.name}.json"):
        state = State(latest_deployment(checkpoint))
        if not state.half_made:
            continue
        names = ", ".join(sorted(name for _, name in state.half_made))
        note(f"The last run was killed while it made {names}: these are taken away first.")
        for one in labelled_after_a_kill(stack.name, hosts(), state):
            if (one.kind, one.name) in state.half_made and one.id not in state.known:
                remove(one)
        stack.query("refresh", "--yes", "--skip-preview", "--clear-pending-creates")
