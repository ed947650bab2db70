"""A server is asked whether its model is loaded, has time to load it, comes back, and stops cleanly."""

import re
from collections.abc import Iterator

from pack.models import served
from pack.rollouts import rollout
from pack.rule import Finding, Params, Rule, about, unread
from pack.stack import Stack
from pack.workload import Probe, Workload

NAME = "health-and-restart"
_PLAIN = "give it as a plain value"
_ASSUMED_S = 300.0
_METADATA = "/v1/models/<model>/metadata answers 200 only while a version is loaded"
_WHAT_IS_ASKED = re.compile(r"\.tests|readinessProbe($|\.httpGet|\.exec)")
_KEEPS = ("always", "unless-stopped")
# What the engine, and the provider, take where nothing is said.
_INTERVAL_S, _RETRIES, _WAIT_S = 30.0, 3, 60.0


def check(stack: Stack, params: Params) -> Iterator[Finding]:
    """Servers in full; the front end by how it comes back and stops."""
    for workload in stack.workloads:
        if workload.init_container or workload.role not in ("server", "front-end"):
            continue
        if workload.is_exempt_from(NAME):
            continue
        for name, what in (
            ("probe", "Health check"),
            ("restart", "Restart policy"),
            ("stop", "Stop setting"),
        ):
            yield from unread(workload, name, what, _PLAIN)
        if workload.is_server:
            yield from _asks_for_models(stack, workload)
            yield from _has_time_to_load(workload, params)
        yield from _comes_back(workload)
        yield from _stops_cleanly(workload)


def _asks_for_models(stack: Stack, server: Workload) -> Iterator[Finding]:
    path = "healthcheck" if server.target == "docker" else "readinessProbe"
    if server.probe is None:
        if not server.unread.get("probe"):
            what = f"{path}: unset: nobody asks whether its model is loaded"
            yield about(server, what, f"ask for its models: {_METADATA}")
        return
    if any(_WHAT_IS_ASKED.search(found.path) for found in server.unread.get("probe", ())):
        return
    asked = " ".join((*server.probe.command, server.probe.http_path or ""))
    listed = _listed(stack, server, server.probe)
    for model in served(stack, server) or ("<model>",):
        in_list = listed is None or model in listed
        if not _is_asked_for(model, asked) and not (in_list and _asks_for_each_of_a_list(asked)):
            what = f"{path}: {_shown(asked)}: does not tell whether {model} is loaded"
            yield about(server, what, f"{_METADATA}; the status itself answers 200 also while it loads")


def _asks_for_each_of_a_list(asked: str) -> bool:
    """A shell reads names, one a line, and asks for each: a list can change under a server that runs."""
    looped = re.search(r"while read -r (\w+); do.*?done\s*<", asked, re.DOTALL)
    if looped is None:
        return False
    name = rf"\$\{{?{looped[1]}\}}?"
    return re.search(rf"/v1/models/{name}(/metadata|:\w+)", looped[0]) is not None


def _listed(stack: Stack, server: Workload, probe: Probe) -> set[str] | None:
    """The names in the list that the check is given; None where none of its words is a file that we see."""
    files = stack.files(server)
    lists = [files[word] for word in probe.command if word in files]
    return {line.strip() for text in lists for line in text.splitlines()} if lists else None


def _is_asked_for(model: str, asked: str) -> bool:
    name = r"[^/:\s\"']+" if model == "<model>" else re.escape(model)
    found = re.search(
        rf"/v1/models/{name}(?:/(?:versions|labels)/\w+)?(/metadata|:\w+)?(?![^\s\"'?;)])", asked
    )
    return found is not None and (found[1] is not None or "AVAILABLE" in asked)


def _shown(asked: str) -> str:
    """The paths that are asked for, or the beginning of the command."""
    paths = re.findall(r"/v1/[^\s\"']*", asked)
    return ", ".join(paths) or asked.strip()[:60] or "nothing"


def _has_time_to_load(server: Workload, params: Params) -> Iterator[Finding]:
    """A server that is given up while it loads is started anew, and loads again."""
    said = server.label("load-timeout-s") or ""
    needed = float(said) if said.isdecimal() else params.number("assumedLoadS", _ASSUMED_S)
    declared = f"its load time is {'' if said.isdecimal() else 'taken as '}{needed:g} s"
    if server.target == "docker":
        yield from _docker_waits(server, needed, declared)
    else:
        yield from _kubernetes_waits(server, needed, declared)


def _docker_waits(server: Workload, needed: float, declared: str) -> Iterator[Finding]:
    if any(found.path.startswith(("wait", "healthcheck")) for found in server.unread.get("probe", ())):
        return
    if server.probe is not None:
        patience = _patience(server.probe)
        if patience < needed:
            what = f"healthcheck.startPeriod: {server.probe.start_period_s or 0:g} s: {declared}"
            yield about(
                server, what, f"set startPeriod to {needed:g} s or more: it is unhealthy before it serves"
            )
    if not server.waits:
        what = "wait: unset: `up` goes on while its model is still loading"
        yield about(server, what, f"set wait to true, and waitTimeout to {needed:g} or more")
    else:
        patience = _WAIT_S if server.wait_timeout_s is None else server.wait_timeout_s
        if patience < needed:
            what = f"waitTimeout: {patience:g} s: {declared}"
            yield about(server, what, f"set waitTimeout to {needed:g} or more: `up` fails before it serves")


def _patience(probe: Probe) -> float:
    """How long after its start a container may fail its check before that counts, in seconds."""
    every = _INTERVAL_S if probe.interval_s is None else probe.interval_s
    times = _RETRIES if not probe.retries else probe.retries
    return (probe.start_period_s or 0) + every * times


def _kubernetes_waits(server: Workload, needed: float, declared: str) -> Iterator[Finding]:
    if server.unread.get("probe"):
        return
    name = "startupProbe" if server.startup_probe else "livenessProbe"
    probe = server.startup_probe or server.liveness_probe
    if probe is not None and _patience(probe) < needed:
        what = f"{name}: {_patience(probe):g} s: {declared}; it is ended while it loads"
        fix = f"a startupProbe whose periodSeconds x failureThreshold is {needed:g} or more"
        yield about(server, what, fix)
    found = rollout(server.resource)
    if found is not None and found.kind == "Deployment" and found.progress_deadline_s < needed:
        what = f"spec.progressDeadlineSeconds: {found.progress_deadline_s:g}: {declared}"
        yield about(server, what, f"set progressDeadlineSeconds to {needed:g} or more")


def _comes_back(workload: Workload) -> Iterator[Finding]:
    if workload.unread.get("restart"):
        return
    if workload.target == "kubernetes":
        if workload.restart not in (None, "Always"):
            what = f"restartPolicy: {workload.restart}: it stays down once it ended"
            yield about(workload, what, "leave restartPolicy out, or set it to Always")
    elif workload.restart not in _KEEPS:
        what = f"restart: {workload.restart or 'unset'}: it stays down after a crash or a restart of its node"
        yield about(workload, what, "set restart to unless-stopped")


def _stops_cleanly(workload: Workload) -> Iterator[Finding]:
    """Requests in flight end first; and a server that ignores the signal is not waited for in vain."""
    if workload.unread.get("stop"):
        return
    if workload.target == "kubernetes":
        if workload.stop_timeout_s == 0:
            what = "terminationGracePeriodSeconds: 0: requests in flight are cut off"
            yield about(workload, what, "set it to as long as a request may take, or leave it out (30)")
        # The signal comes as the pod leaves the Service's addresses, of which clients hear later.
        if workload.is_server and not workload.lingers:
            what = "lifecycle.preStop: unset: it ends while requests are still sent to it"
            yield about(workload, what, "a preStop that sleeps until clients and requests in flight are gone")
        return
    if workload.stop_timeout_s is not None and workload.stop_timeout_s < 1:
        what = f"stopTimeout: {workload.stop_timeout_s:g}: it is killed at once, and requests with it"
        yield about(workload, what, "set stopTimeout to as long as a request may take")
    if (workload.removal_grace_s or 0) <= 0:
        said = "unset" if workload.removal_grace_s is None else f"{workload.removal_grace_s:g}"
        what = f"destroyGraceSeconds: {said}: the provider kills it at once where it replaces it"
        yield about(workload, what, "set destroyGraceSeconds to the same as stopTimeout")
    if (workload.stop_signal or "SIGTERM").removeprefix("SIG") in ("KILL", "9"):
        what = f"stopSignal: {workload.stop_signal}: requests in flight are cut off"
        yield about(workload, what, "set stopSignal to SIGTERM")
    if workload.is_server and not workload.has_init:
        what = "init: unset: as process 1 the server does not get SIGTERM, and every stop takes its full time"
        yield about(workload, what, "set init to true, with the server itself as entrypoint")
    elif workload.is_server and _starts_with_a_script(workload):
        shown = workload.entrypoint[0] if workload.entrypoint else "the image's script"
        what = f"entrypoints: {shown}: bash is between init and the server, and keeps SIGTERM from it"
        yield about(workload, what, "set entrypoints to /usr/bin/tensorflow_model_server")


def _starts_with_a_script(server: Workload) -> bool:
    program = server.entrypoint[0].rpartition("/")[2] if server.entrypoint else ""
    return not program or program in ("bash", "sh") or program.endswith(".sh")


RULES = (
    Rule(
        name=NAME,
        scope="resource",
        protects="A server is well once its model is loaded, has time for that, and comes back by itself",
        severity="high",
        steps=(
            "Let the health check (Kubernetes: readinessProbe) ask for /v1/models/<model>/metadata of each "
            "model, wait at least the declared load time, restart unless stopped, and stop by SIGTERM with "
            "time for what is in flight (Kubernetes: after a preStop that sleeps)."
        ),
        why=(
            "https://github.com/tensorflow/serving/issues/1754",
            "https://github.com/tensorflow/serving/issues/1853",
            "https://github.com/kreuzwerker/terraform-provider-docker/issues/595",
        ),
        exempt=(
            "A front end by the label `tf-serving.exempt: health-and-restart`. The load time of a server is "
            "its label `tf-serving.load-timeout-s`."
        ),
        levels={"local": "advisory", "staging": "mandatory", "prod": "mandatory"},
        check=check,
        schema={
            "assumedLoadS": {
                "type": "number",
                "minimum": 0,
                "default": _ASSUMED_S,
                "description": "load time of a server that declares none, in seconds",
            }
        },
    ),
)
