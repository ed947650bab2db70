"""Which pods of a stack are not well, and why: the provider's error says little, and of a pod that no node
can take nothing.

Runs in the virtual environment: `.venv/bin/python -m ops.pods STACK` prints what is wrong now, with `watch`
behind it what no node can take, as long as it runs.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ops import labels, paths
from ops.errors import UserError
from ops.kube_api import ApiError, Json, KubeApi

_EVERY_S = 3.0
# A roll without spare GPUs has a pod without a node for a moment, too.
_PATIENCE_S = 15.0


@dataclass(frozen=True)
class Place:
    """Where the pods of a stack are."""

    api: KubeApi
    namespace: str
    stack: str

    def pods(self) -> list[Json]:
        """Those that are not about to be deleted."""
        wanted = f"labelSelector={labels.STACK}%3D{self.stack}"
        found = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods?{wanted}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def unplaced(pod: Json) -> str:
    """Why no node takes a pod, in the scheduler's words; empty where one does."""
    for condition in pod.get("status", {}).get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason") or "no reason is given")
    return ""


def wrong(pod: Json) -> str:
    """What is the matter with a pod; empty where it is well, or has done its work."""
    status = pod.get("status", {})
    if status.get("phase") == "Succeeded" or _is_ready(status):
        return ""
    if unplaced(pod):
        return f"no node takes it: {unplaced(pod)}"
    return "; ".join(_of_containers(status)) or f"{status.get('phase', 'Unknown')}, and not ready"


def _is_ready(status: Json) -> bool:
    ready = [each["status"] for each in status.get("conditions", []) if each["type"] == "Ready"]
    return ready == ["True"]


def _of_containers(status: Json) -> Iterator[str]:
    for container in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])):
        for when, name in (("state", ""), ("lastState", "before that, ")):
            state = container.get(when, {})
            waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
            if waiting.get("reason") and waiting["reason"] not in ("PodInitializing", "ContainerCreating"):
                yield _words(container, name, waiting["reason"], waiting.get("message"))
            if ended.get("exitCode"):
                said = f"{ended.get('reason', 'Error')}, exit code {ended['exitCode']}"
                yield _words(container, name, said, ended.get("message"))


def _words(container: Json, when: str, what: str, message: str | None) -> str:
    return f"{container['name']}: {when}{what}" + (f": {message.strip()}" if message else "")


def report(place: Place) -> str:
    """For people, after an `up` that failed; empty where all are well."""
    lacks = {str(pod["metadata"]["name"]): wrong(pod) for pod in place.pods() if wrong(pod)}
    return "\n".join([f"Not well in namespace {place.namespace}:", *_together(lacks)]) if lacks else ""


def _together(lacks: Mapping[str, str]) -> Iterator[str]:
    """A line for each thing that is wrong, with all that share it."""
    for why in dict.fromkeys(lacks.values()):
        yield f"{', '.join(sorted(name for name in lacks if lacks[name] == why))}: {why}"


def watch(place: Place) -> Iterator[str]:
    """For people, during an `up`: each pod that no node takes for a while, with the reason, once."""
    since: dict[str, float] = {}
    told: set[str] = set()
    began_by = os.getppid()
    while os.getppid() == began_by:  # else who wanted to know is gone
        now = time.monotonic()
        waiting = {str(pod["metadata"]["name"]): unplaced(pod) for pod in _asked(place) if unplaced(pod)}
        since = {name: since.get(name, now) for name in waiting}
        news = {
            name: f"no node takes it: {why}"
            for name, why in waiting.items()
            if name not in told and now - since[name] >= _PATIENCE_S
        }
        told |= news.keys()
        yield from _together(news)
        time.sleep(_EVERY_S)


def _asked(place: Place) -> list[Json]:
    try:
        return place.pods()
    except (OSError, ApiError):
        return []  # `up` itself says so


@contextmanager
def watched(stack: str) -> Iterator[None]:
    """Say meanwhile which pods no node takes, in a process of its own."""
    command = [str(paths.PYTHON), "-m", "ops.pods", stack, "watch"]
    process = subprocess.Popen(
        command, cwd=paths.ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def show(stack: str) -> None:
    """Print what is wrong with a stack's pods now."""
    subprocess.run([str(paths.PYTHON), "-m", "ops.pods", stack], cwd=paths.ROOT, check=False)


def place_of(stack: str) -> Place | None:
    """Where a stack's pods are; None where it is on no cluster that is reached."""
    from components.kubernetes_settings import KubernetesSettings
    from components.stack_file import load_stack_file
    from ops.kubeconfig import api_of

    settings = load_stack_file(paths.stack_file(stack))
    if not isinstance(settings, KubernetesSettings) or settings.cluster.kubeconfig is None:
        return None
    kubeconfig = paths.ROOT / Path(settings.cluster.kubeconfig).expanduser()
    api = api_of(kubeconfig, settings.cluster.context or "")
    return Place(api, settings.cluster.namespace, stack)


def main(stack: str, mode: str = "") -> int:
    """Print what is wrong; nothing where nothing can be asked."""
    try:
        place = place_of(stack)
        if place is None:
            return 0
        if mode == "watch":
            for line in watch(place):
                print(f"\n{line}", flush=True)  # Pulumi may be in the middle of a line
        said = report(place)
        if said:
            print(f"\n{said}", flush=True)
    except (UserError, OSError, ApiError) as error:
        print(f"pods of stack {stack} could not be asked: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
