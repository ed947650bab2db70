"""The engine, or the whole machine, goes down under load and comes back."""

import time

from drills.checks import addresses, answered_at_the_end, healthy, no_change
from drills.plays import ENOUGH, Play
from drills.stage import Rate, Stage, Traffic

_DRIVER_LATE_S = 5
_BY_ITSELF_S = 30


def engine_restarted(stage: Stage) -> Traffic:
    """Everything stops and comes back by itself; what is asked for is that no operator is needed."""
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        time.sleep(2)
        stage.restart_engine()
        stage.wait_healthy(0, 1, 2, 3)
    answered_at_the_end(traffic)
    no_change(stage)
    return traffic


def power_cut(stage: Stage) -> Traffic:
    """Every process is killed at once, and the engine started again."""
    before = addresses(stage)
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        time.sleep(2)
        stage.restart_engine(power_cut=True)
        stage.wait_healthy(0, 1, 2, 3)
    answered_at_the_end(traffic)
    assert addresses(stage) == before
    no_change(stage)
    return traffic


def driver_late(stage: Stage) -> Traffic:
    """After a power cut the engine is there some seconds before the driver."""
    before = addresses(stage)
    absent = stage.own.driver_absent
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        time.sleep(2)
        absent.touch()
        try:
            stage.restart_engine(power_cut=True)
            time.sleep(_DRIVER_LATE_S)
        finally:
            absent.unlink()
        time.sleep(_BY_ITSELF_S)
        back = [gpu for gpu in range(4) if healthy(stage, stage.container(gpu))]
        for gpu in range(4):
            if gpu not in back:
                stage.engine.run("start", stage.container(gpu))
        stage.wait_healthy(0, 1, 2, 3)
        time.sleep(10)  # until Envoy lets them in again
    answered_at_the_end(traffic)
    assert addresses(stage) == before
    no_change(stage)
    traffic.seen.append(f"{len(back)} of 4 came back by themselves")
    return traffic


def destroyed_while_loaded(stage: Stage) -> Traffic:
    """`destroy` under load leaves nothing; played last."""
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        time.sleep(5)
        stage.destroy()
    return traffic


_BACK = "back by itself, same addresses, `up --refresh` changes nothing"
PLAYS = (
    Play(number=14, title="Engine restarted", holds=_BACK, run=engine_restarted),
    Play(number=19, title="Power cut", holds=_BACK, run=power_cut),
    Play(
        number=21,
        title=f"Power cut, driver {_DRIVER_LATE_S} s later than the engine",
        holds="`docker start` brings back what did not by itself; same addresses",
        run=driver_late,
    ),
    Play(number=18, title="Destroyed while loaded", holds="nothing is left", run=destroyed_while_loaded),
)
