"""The engine, or the whole machine, goes down under load and comes back."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drills.checks import (
    addresses,
    all_answered,
    answered_at_the_end,
    failing_after_s,
    healthy,
    no_change,
)
from drills.plays import ENOUGH, Play
from drills.records import ANSWERED
from drills.stage import Rate, Stage, Traffic
from tests.integration.drill import wait_until

_DRIVER_LATE_S = 15
_BY_ITSELF_S = 20
# From when the engine is there: containers start, models load, Envoy sees it.
_BACK_WITHIN_S = 30
_OBSERVED_S = 4
_AWAY_S = 5


def engine_restarted(stage: Stage) -> Traffic:
    """Everything stops and comes back by itself; what is asked for is that no operator is needed."""
    return _restarted(stage, power_cut=False)


def engine_restarted_alone(stage: Stage) -> Traffic:
    """With `live-restore` the containers run on while there is no engine; what led to them is asked, too."""
    before = addresses(stage)
    with stage.live_restore() as engine:
        _wait_until_all_serve(stage)
        began = _began(stage)
        with (
            stage.traffic(Rate(), at_least=ENOUGH, directly=True) as traffic,
            stage.traffic(Rate(rest=30, grpc=30)) as led,
        ):
            time.sleep(2)
            engine.restart_dockerd(away_s=_AWAY_S)
            time.sleep(_OBSERVED_S)
        assert _began(stage) == began
        assert addresses(stage) == before
        all_answered(traffic)
        answered_at_the_end(led)
        no_change(stage)
    failed, all_led = sum(request.outcome != ANSWERED for request in led.all), len(led.all)
    traffic.seen.append(
        f"engine away for {_AWAY_S} s; on the loopback, by its own proxy, {failed} of {all_led} failed"
    )
    _wait_until_all_serve(stage)
    return traffic


def _wait_until_all_serve(stage: Stage) -> None:
    stage.wait_healthy(0, 1, 2, 3)
    wait_until(lambda: healthy(stage, stage.envoy), "the front end healthy")
    time.sleep(_OBSERVED_S)  # until Envoy lets all of them in again


def _began(stage: Stage) -> dict[str, str]:
    """When what serves was started, by container."""
    return {
        name: stage.engine.run("inspect", "--format", "{{.State.StartedAt}}", name) for name in stage.serving
    }


def power_cut(stage: Stage) -> Traffic:
    """Every process is killed at once, and the engine started again."""
    return _restarted(stage, power_cut=True)


def _restarted(stage: Stage, *, power_cut: bool) -> Traffic:
    before = addresses(stage)
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        time.sleep(2)
        stage.restart_engine(power_cut=power_cut)
        started = time.monotonic()
        _wait_until_all_serve(stage)
    _is_as_before(stage, before, traffic, started)
    return traffic


def _is_as_before(stage: Stage, before: dict[str, str], traffic: Traffic, started_s: float) -> None:
    answered_at_the_end(traffic)
    back_s = failing_after_s(traffic, started_s)
    assert back_s < _BACK_WITHIN_S, back_s
    traffic.seen.append(f"all answered {back_s:.1f} s after the engine was up")
    assert addresses(stage) == before
    no_change(stage)


def driver_late(stage: Stage) -> Traffic:
    """After a power cut the driver takes a while: first the engine does not wait for it, then it does."""
    before = addresses(stage)
    absent = stage.own.driver_absent
    instances = [stage.container(gpu) for gpu in range(4)]
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        time.sleep(2)
        with _driver_comes(absent):
            stage.restart_engine(power_cut=True)
        time.sleep(_BY_ITSELF_S)
        back = [name for name in instances if healthy(stage, name)]
        stage.engine.run("start", *instances)
        stage.wait_healthy(0, 1, 2, 3)
        with _driver_comes(absent):
            # What docs/runbook.md has systemd do.
            stage.restart_engine(
                power_cut=True,
                before_it_starts=lambda: wait_until(lambda: not absent.exists(), "the driver"),
            )
        started = time.monotonic()
        stage.wait_healthy(0, 1, 2, 3)
        time.sleep(10)  # until Envoy lets them in again
    _is_as_before(stage, before, traffic, started)
    # The reason why the runbook has the engine wait: it tries to start each of them once.
    assert not back, back
    traffic.seen.append(f"where the engine did not wait for the driver, {len(back)} of 4 came back")
    return traffic


@contextmanager
def _driver_comes(absent: Path) -> Iterator[None]:
    """The driver is absent from now on, and comes after a while."""
    absent.touch()
    comes = threading.Timer(_DRIVER_LATE_S, absent.unlink)
    comes.start()
    try:
        yield
    finally:
        comes.join()


def destroyed_while_loaded(stage: Stage) -> Traffic:
    """`destroy` under load leaves nothing; played last."""
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        time.sleep(5)
        stage.destroy()
    return traffic


_BACK = (
    f"back by itself within {_BACK_WITHIN_S} s of the engine, same addresses, `up --refresh` changes nothing"
)
PLAYS = (
    Play(number=14, title="Engine restarted", holds=_BACK, run=engine_restarted),
    Play(
        number=23,
        title="Engine restarted, with `live-restore`",
        holds="no failed request at Envoy's own address; nothing restarts; `up --refresh` changes nothing",
        run=engine_restarted_alone,
    ),
    Play(number=19, title="Power cut", holds=_BACK, run=power_cut),
    Play(
        number=21,
        title="Power cut, the driver comes late",
        holds=f"{_BACK}, where the engine waits for the driver",
        run=driver_late,
    ),
    Play(number=18, title="Destroyed while loaded", holds="nothing is left", run=destroyed_while_loaded),
)
