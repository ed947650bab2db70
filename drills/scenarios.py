"""The drills: what is done to the stage while clients keep asking, and what must hold then."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from drills.records import ANSWERED, summary
from drills.stage import Rate, Stage, Traffic, variant
from tests.integration.drill import BackgroundUp, Config, wait_until

ENOUGH = 10_000
_ROLL = 100_000
_FAULT = "/tmp/simulator_fault"  # noqa: S108 - in the container


@dataclass(frozen=True, kw_only=True)
class Play:
    """One drill: `run` plays it and gives back the traffic; what it asserts is said by `holds`."""

    number: int
    title: str
    holds: str
    run: Callable[[Stage], Traffic]


def batching_change(stage: Stage) -> Traffic:
    """The pool is rolled again and again, as long as the requests last."""
    before = stage.engine.ids()
    with stage.traffic(Rate(rest=1000, grpc=300), at_least=_ROLL) as traffic:
        for timeout in (2000, 1000):
            stage.change(_batching, timeout)
    _all_answered(traffic)
    after = stage.engine.ids()
    assert all(after[stage.container(gpu)] != before[stage.container(gpu)] for gpu in range(4))
    assert after[f"{stage.stack}.local-envoy"] == before[f"{stage.stack}.local-envoy"]
    return traffic


def image_change(stage: Stage) -> Traffic:
    """Another image, and the old one again."""
    first = stage.config["images"]["server"]
    other = variant(stage.engine, "other", "SIM_BASE_MS=4")
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        for image in (other, first):
            stage.change(_image, image)
    _all_answered(traffic)
    return traffic


def instance_killed(stage: Stage) -> Traffic:
    """SIGKILL for a server; the engine starts it again."""
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        time.sleep(2)
        for gpu in (1, 3):
            os.kill(stage.process(gpu), signal.SIGKILL)
            wait_until(lambda gpu=gpu: not _healthy(stage, gpu), f"gpu{gpu} noticed")  # type: ignore[misc]
            stage.wait_healthy(gpu)
    _all_answered(traffic)
    _all_serve(traffic, 4)
    return traffic


def instance_hangs(stage: Stage) -> Traffic:
    """SIGSTOP: it takes connections and answers nothing."""
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        time.sleep(2)
        pid = stage.process(2)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(10)  # how long it hangs
        finally:
            os.kill(pid, signal.SIGCONT)
        stage.wait_healthy(2)
    _all_answered(traffic)
    return traffic


def instance_answers_errors(stage: Stage) -> Traffic:
    """A GPU that fails every prediction while the server's status stays AVAILABLE."""
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        time.sleep(2)
        name = stage.container(0)
        stage.engine.run("exec", name, "bash", "-c", f"echo CUDA_ERROR_ILLEGAL_ADDRESS > {_FAULT}")
        time.sleep(8)  # how long it fails
        stage.engine.run("exec", name, "rm", _FAULT)
    _all_answered(traffic)
    return traffic


def slow_start(stage: Stage) -> Traffic:
    """A replaced instance that loads for a while gets nothing before it is loaded."""
    marker = _models(stage) / "1" / "simulator_load_seconds"
    marker.write_text("4")
    try:
        with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
            stage.change(_batching, 1500)
    finally:
        marker.unlink()
    _all_answered(traffic)
    return traffic


def engine_restarted(stage: Stage) -> Traffic:
    """Everything stops and comes back by itself; what is asked for is that no operator is needed."""
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        time.sleep(2)
        stage.restart_engine()
        stage.wait_healthy(0, 1, 2, 3)
    _answered_at_the_end(traffic)
    _no_change(stage)
    return traffic


def power_cut(stage: Stage) -> Traffic:
    """Every process is killed at once, and the engine started again."""
    before = _addresses(stage)
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        time.sleep(2)
        stage.restart_engine(power_cut=True)
        stage.wait_healthy(0, 1, 2, 3)
    _answered_at_the_end(traffic)
    assert _addresses(stage) == before
    _no_change(stage)
    return traffic


def second_up(stage: Stage) -> Traffic:
    """Two `up` at once: one does its work, the other is refused with a reason."""
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        _batching(stage.config, 2500)
        stage.write()
        with BackgroundUp(stage, stage.folder / "first.log") as first:
            wait_until(lambda: "replacing" in first.said() or first.process.poll() is not None, "it rolls")
            second = stage.project.up(stage.stack)
            assert second.code != 0
            assert "locked" in second.output, second.output
            assert first.process.wait(timeout=300) == 0, first.said()
    _all_answered(traffic)
    return traffic


def destroyed_while_loaded(stage: Stage) -> Traffic:
    """`destroy` under load leaves nothing; played last."""
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        time.sleep(5)
        stage.destroy()
    return traffic


def _batching(config: Config, timeout: int) -> None:
    config["pools"][0]["batching"]["batch_timeout_micros"] = timeout


def _image(config: Config, image: str) -> None:
    config["images"]["server"] = image


def _models(stage: Stage) -> Path:
    return stage.folder / "models" / "half_plus_two"


def _healthy(stage: Stage, gpu: int) -> bool:
    shown = stage.engine.run("ps", "--filter", "health=healthy", "--format", "{{.Names}}")
    return stage.container(gpu) in shown.split()


def _addresses(stage: Stage) -> dict[str, str]:
    template = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
    names = [stage.container(gpu) for gpu in range(4)] + [f"{stage.stack}.local-envoy"]
    return {name: stage.engine.run("inspect", "--format", template, name) for name in names}


def _no_change(stage: Stage) -> None:
    again = stage.project.up(stage.stack, "--refresh", "--expect-no-changes")
    assert again.code == 0, again.output


def _all_answered(traffic: Traffic) -> None:
    failed = summary(traffic.all).failed
    assert not failed, dict(failed)


def _answered_at_the_end(traffic: Traffic, last_s: float = 3) -> None:
    end = max(request.end_s for request in traffic.all)
    late = [request for request in traffic.all if request.start_s > end - last_s]
    assert late
    assert {request.outcome for request in late} == {ANSWERED}


def _all_serve(traffic: Traffic, instances: int, last_s: float = 3) -> None:
    end = max(request.end_s for request in traffic.all)
    late = {request.served_by for request in traffic.all if request.start_s > end - last_s}
    assert len(late) == instances, late


PLAYS: Sequence[Play] = (
    Play(
        number=1,
        title="Batching changed, rolled over four GPUs",
        holds="no failed request",
        run=batching_change,
    ),
    Play(number=2, title="Image changed", holds="no failed request", run=image_change),
    Play(number=8, title="Instance killed", holds="no failed request; it serves again", run=instance_killed),
    Play(number=10, title="Instance hangs", holds="no failed request", run=instance_hangs),
    Play(number=11, title="Instance answers 500", holds="no failed request", run=instance_answers_errors),
    Play(number=12, title="Slow start of a replaced instance", holds="no failed request", run=slow_start),
    Play(
        number=14,
        title="Engine restarted",
        holds="back by itself, `up --refresh` changes nothing",
        run=engine_restarted,
    ),
    Play(
        number=19,
        title="Power cut",
        holds="back by itself, same addresses, `up --refresh` changes nothing",
        run=power_cut,
    ),
    Play(number=20, title="Two `up` at once", holds="one is refused; no failed request", run=second_up),
    Play(number=18, title="Destroyed while loaded", holds="nothing is left", run=destroyed_while_loaded),
)
