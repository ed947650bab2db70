"""Which containers of a stack are not well, and what they said last: a provider's error tells little."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ops import labels
from ops.hosts import Host

_LOG_LINES = 12
# Of a container that its engine lost sight of. Where it had not done its work, Pulumi has it as failed and
# makes it anew.
_UNKNOWN = 255


@dataclass(frozen=True)
class Unwell:
    """A container that does not run or is not healthy (yet); `log` is the end of its log."""

    node: str
    container: str
    state: str
    starting: bool
    probe: str
    log: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.container} on node {self.node}: {self.state}"]
        lines += [f"  its health check says: {self.probe}"] if self.probe else []
        lines += [f"  {line}" for line in ("the end of its log:", *(f"  {line}" for line in self.log))]
        return "\n".join(lines)


def unwell(stack: str, hosts: Mapping[str, Host]) -> list[Unwell]:
    """The stack's containers that are not well; nodes whose engine does not answer have none."""
    return [found for node, host in hosts.items() for found in _on(stack, node, host)]


def report(stack: str, hosts: Mapping[str, Host], *, failed: bool) -> str:
    """For people, after an `up`; empty where all is well. One that starts is no news unless that failed."""
    found = [one for one in unwell(stack, hosts) if failed or not one.starting]
    remedy = f"If a container was stopped or removed: `make heal STACK={stack}` first, then `up` again."
    return "\n\n".join(["Not well:", *map(str, found), remedy]) if found else ""


def anything_made(stack: str, hosts: Mapping[str, Host], *, within_s: float) -> bool:
    """Whether a container of the stack was made in the last seconds, by each engine's own clock."""
    return any(_youngest_s(stack, node, host) < within_s for node, host in hosts.items())


def _youngest_s(stack: str, node: str, host: Host) -> float:
    """Seconds since the node's newest container of the stack was made; infinite where there is none."""
    listed = host.docker("ps", "--all", "--quiet", "--no-trunc", *labels.filters(stack, node)).stdout.split()
    now = host.docker("info", "--format", "{{.SystemTime}}").stdout.strip()
    if not listed or not now:
        return float("inf")
    made = host.docker("inspect", "--type=container", "--format", "{{.Created}}", *listed).stdout.split()
    ages = (datetime.fromisoformat(now) - datetime.fromisoformat(one) for one in made)
    return min(ages, default=timedelta.max).total_seconds()


def _on(stack: str, node: str, host: Host) -> Iterator[Unwell]:
    listed = host.docker("ps", "--all", "--quiet", "--no-trunc", *labels.filters(stack, node)).stdout.split()
    if not listed:
        return
    inspected = host.docker("inspect", "--type=container", *listed)
    for container in sorted(json.loads(inspected.stdout or "[]"), key=lambda one: str(one["Name"])):
        name, state = container["Name"].removeprefix("/"), container["State"]
        health = state.get("Health") or {}
        status = health.get("Status", "healthy")
        if state["Status"] == "running" and status == "healthy":
            continue
        role = (container.get("Config", {}).get("Labels") or {}).get(labels.ROLE)
        if role in labels.ENDING and state["Status"] == "exited" and _did_its_work(state, health):
            continue
        probes = health.get("Log") or [{}]
        log = host.docker("logs", "--tail", str(_LOG_LINES), name)
        lines = (log.stdout + log.stderr).strip().splitlines()
        yield Unwell(
            node=node,
            container=name,
            state=_words(state, status),
            starting=state["Status"] == "running" and status == "starting",
            probe=(probes[-1].get("Output") or "").strip(),
            log=tuple(lines[-_LOG_LINES:]) or ("(nothing)",),
        )


def _did_its_work(state: Mapping[str, object], health: Mapping[str, Any]) -> bool:
    """Whether one that ends has ended well, or was healthy before it was killed: then all was done."""
    return state["ExitCode"] in (0, _UNKNOWN) or any(
        probe.get("ExitCode") == 0 for probe in health.get("Log") or []
    )


def _words(state: Mapping[str, object], health: str) -> str:
    if state["Status"] == "running":
        return f"runs, but its health is: {health}"
    reasons = [f"exit code {state['ExitCode']}"]
    reasons += ["killed for want of memory"] if state.get("OOMKilled") else []
    reasons += [str(state["Error"])] if state.get("Error") else []
    return f"{state['Status']} ({', '.join(reasons)})"
