"""Instances fail in one way or another."""

import os
import signal
import time

from drills.changes import NOTHING_LOST
from drills.checks import all_answered, all_serve, between, healthy
from drills.plays import ENOUGH, Play
from drills.stage import Rate, Stage, Traffic
from tests.integration.drill import wait_until

_FAULT = "/tmp/simulator_fault"  # noqa: S108 - in the container
_HANG_S = 20
# Whoever meets the instance that hangs waits for it. So many clients that the others still keep up the rate,
# and so slow that they last until the instance is ejected.
_PATIENT = Rate(rest=170, grpc=80, rest_clients=250, grpc_clients=120)


def killed(stage: Stage) -> Traffic:
    """SIGKILL for a server; the engine starts it again."""
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        time.sleep(2)
        for gpu in (1, 3):
            name = stage.container(gpu)
            os.kill(stage.process(gpu), signal.SIGKILL)
            wait_until(lambda name=name: not healthy(stage, name), f"{name} noticed")  # type: ignore[misc]
            stage.wait_healthy(gpu)
    all_answered(traffic)
    all_serve(traffic, 4)
    return traffic


def hangs(stage: Stage) -> Traffic:
    """SIGSTOP: it takes connections and answers nothing."""
    with stage.traffic(_PATIENT, at_least=ENOUGH) as traffic:
        time.sleep(2)
        pid = stage.process(2)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(_HANG_S)
        finally:
            os.kill(pid, signal.SIGCONT)
        stage.wait_healthy(2)
    all_answered(traffic)
    waited = [request.duration_s for request in traffic.all if request.duration_s > 1]
    traffic.seen.append(f"{len(waited)} requests waited for it, up to {max(waited, default=0):.1f} s")
    return traffic


def answers_errors(stage: Stage) -> Traffic:
    """A GPU that fails every prediction while the server's status stays AVAILABLE."""
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        time.sleep(2)
        name = stage.container(0)
        stage.engine.run("exec", name, "bash", "-c", f"echo CUDA_ERROR_ILLEGAL_ADDRESS > {_FAULT}")
        begin = time.monotonic() + 1
        time.sleep(8)  # how long it fails
        end = time.monotonic()
        stage.engine.run("exec", name, "rm", _FAULT)
        time.sleep(12)  # the last ejection, and some seconds in which it serves
    all_answered(traffic)
    assert "local-gpu0" not in {request.served_by for request in between(traffic.all, begin, end)}
    all_serve(traffic, 4)
    return traffic


PLAYS = (
    Play(number=8, title="Instance killed", holds=f"{NOTHING_LOST}; it serves again", run=killed),
    Play(
        number=10,
        title=f"Instance hangs for {_HANG_S} s",
        holds=f"{NOTHING_LOST}; the others go on",
        run=hangs,
    ),
    Play(
        number=11,
        title="Instance answers 500, INTERNAL",
        holds=f"{NOTHING_LOST}; it serves again",
        run=answers_errors,
    ),
)
