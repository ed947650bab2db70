"""What must hold after a drill."""

import math
import re
import urllib.request
from collections.abc import Iterable

from drills.records import ANSWERED, Request, summary
from drills.stage import Stage, Traffic


def all_answered(traffic: Traffic) -> None:
    """No request failed."""
    failed = summary(traffic.all).failed
    assert not failed, dict(failed)


def answered_at_the_end(traffic: Traffic, last_s: float = 3) -> None:
    """Whatever failed before, nothing does any more."""
    late = at_the_end(traffic, last_s)
    assert late
    assert {request.outcome for request in late} == {ANSWERED}


def all_serve(traffic: Traffic, instances: int, last_s: float = 3) -> None:
    """So many instances serve in the end."""
    late = {request.served_by for request in at_the_end(traffic, last_s)}
    assert len(late) == instances, late


def at_the_end(traffic: Traffic, last_s: float) -> list[Request]:
    """The requests of the last seconds."""
    end = max(request.end_s for request in traffic.all)
    return [request for request in traffic.all if request.start_s > end - last_s]


def between(requests: Iterable[Request], since_s: float, until_s: float) -> list[Request]:
    """Those that were answered and lie wholly within this time."""
    return [
        request
        for request in requests
        if request.outcome == ANSWERED and since_s <= request.start_s and request.end_s <= until_s
    ]


def is_binomial(hits: int, requests: int, percent: float) -> None:
    """A share is what chance may make of a percentage: five standard deviations, one run in a million."""
    expected = percent / 100
    allowed = 5 * math.sqrt(requests * expected * (1 - expected))
    assert requests > 0
    assert abs(hits - requests * expected) <= allowed, f"{hits} of {requests}, wanted {percent} %"


def failing_after_s(traffic: Traffic, moment_s: float) -> float:
    """From a moment to the end of the last failed request, in seconds; 0 where none ended after it."""
    failed = [request.end_s for request in traffic.all if request.outcome != ANSWERED]
    return max([0.0, *(end - moment_s for end in failed)])


def sent_twice(stage: Stage) -> int:
    """Requests that Envoy has sent to a second instance so far: retries, of all pools."""
    port = int(stage.config["front_end"]["metrics_port"])
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        text = page.read().decode()
    return sum(map(int, re.findall(r"^envoy_cluster_upstream_rq_retry{.*} (\d+)$", text, re.MULTILINE)))


def healthy(stage: Stage, name: str) -> bool:
    """Whether the engine calls a container healthy."""
    return name in stage.engine.run("ps", "--filter", "health=healthy", "--format", "{{.Names}}").split()


def addresses(stage: Stage) -> dict[str, str]:
    """The addresses of what serves, by container."""
    template = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
    return {name: stage.engine.run("inspect", "--format", template, name) for name in stage.serving}


def no_change(stage: Stage) -> None:
    """`up --refresh` finds what the stack file says."""
    again = stage.project.up(stage.stack, "--refresh", "--expect-no-changes", "--suppress-outputs")
    assert again.code == 0, again.output
