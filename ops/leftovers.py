"""What a killed `make up` left in the local stack's engine: made there, and not yet in the state.

Pulumi notes what it is about to create, and what it has created. A kill between the two leaves a container
under a name that the next `up` wants for its own.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ops import labels
from ops.stack import Stack
from toolchain.progress import note

# Containers go first: a network with a container on it cannot be removed.
_KINDS = {
    "docker:index/container:Container": (
        "container",
        "{{json .Config.Labels}}",
        ["rm", "--force", "--volumes"],
    ),
    "docker:index/network:Network": ("network", "{{json .Labels}}", ["network", "rm"]),
    "docker:index/volume:Volume": ("volume", "{{json .Labels}}", ["volume", "rm"]),
}


@dataclass(frozen=True)
class Leftover:
    """Something that was being created: its Pulumi type and its name in the engine."""

    type: str
    name: str


def interrupted_creations(checkpoint: Path) -> list[Leftover]:
    """What a stack's state file says was being created when the last run ended."""
    try:
        latest = json.loads(checkpoint.read_text()).get("checkpoint", {}).get("latest") or {}
    except (OSError, ValueError):
        return []
    operations = latest.get("pending_operations") or []
    resources = [entry["resource"] for entry in operations if entry.get("type") == "creating"]
    found = [
        Leftover(resource["type"], resource["inputs"]["name"])
        for resource in resources
        if resource.get("type") in _KINDS and "name" in resource.get("inputs", {})
    ]
    return sorted(found, key=lambda leftover: list(_KINDS).index(leftover.type))


def clear(stack: Stack, docker_host: str) -> None:
    """Remove what was half made, where it is labelled as this stack's, and drop it from the state."""
    if stack.backend is None:
        return
    for checkpoint in stack.backend.state.glob(f".pulumi/stacks/*/{stack.name}.json"):
        leftovers = interrupted_creations(checkpoint)
        if not leftovers:
            continue
        names = ", ".join(leftover.name for leftover in leftovers)
        note(f"The last run was killed while it made {names}: these are taken away first.")
        for leftover in leftovers:
            _remove(leftover, docker_host, stack.name)
        stack.query("refresh", "--yes", "--skip-preview", "--clear-pending-creates")


def _remove(leftover: Leftover, docker_host: str, stack: str) -> None:
    kind, labels_of, removal = _KINDS[leftover.type]
    shown = _docker(docker_host, kind, "inspect", "--format", labels_of, leftover.name)
    found: Mapping[str, str] = json.loads(shown) or {} if shown else {}
    if found.get(labels.STACK) == stack:
        _docker(docker_host, *removal, leftover.name)


def _docker(docker_host: str, *arguments: str) -> str:
    command = ["docker", "--host", docker_host, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120).stdout.strip()
