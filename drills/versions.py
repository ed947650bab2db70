"""A pool gets another version GPU by GPU, as `make release` does it: each step is an `up`."""

import time

from drills import edits
from drills.changes import NOTHING_LOST
from drills.checks import all_answered, between
from drills.plays import ENOUGH, Play
from drills.records import share
from drills.stage import Rate, Stage, Traffic
from tests.integration.drill import BackgroundUp, Config, prepare_as_make_up_does, wait_until

_WINDOW_S = 5.0
_LITTLE = Rate(rest=60, grpc=30, rest_clients=3, grpc_clients=3)


def _moved(config: Config, count: int | None) -> None:
    """How many GPUs have version 2; None: no release is under way."""
    pool = config["pools"][0]
    pool.pop("release", None)
    if count is not None:
        pool["release"] = {"model": pool["models"][0]["name"], "version": 2, "moved": count}


def released(stage: Stage) -> Traffic:
    """To half of it and back; then, killed in a step, to the end. Some want version 1 while it is there."""
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        with stage.traffic(_LITTLE, ("x-tf-model-version=1",)) as who_wants_the_old:
            for count in (0, 1, 2):
                stage.change(_moved, count)
            begin = time.monotonic()
            time.sleep(_WINDOW_S)  # what is observed
            end = time.monotonic()
            for back in (0, None, 0, 1, 2):
                stage.change(_moved, back)
            _killed(stage, 3)
            stage.apply()
        stage.change(_moved, 4)
        before = stage.serving
        stage.config["pools"][0]["new_versions"] = "replace"
        edits.version(stage.config, 2)
        stage.change(_moved, None)
        assert stage.serving == before
        done = time.monotonic()
        time.sleep(2)
    all_answered(traffic)
    all_answered(who_wants_the_old)
    assert {request.version for request in who_wants_the_old.all} == {"1"}
    hits, requests = share(between(traffic.all, begin, end), "2")
    assert 0.3 < hits / requests < 0.7
    of_new, later = share(between(traffic.all, done, time.monotonic()), "2")
    assert of_new == later > 0
    traffic.seen.append(f"2 of 4 moved: version 2 answered {100 * hits / requests:.1f} %")
    traffic.seen.append(
        f"version 1 by header, while it was there: {len(who_wants_the_old.all)} requests, 0 failed"
    )
    return traffic


def _killed(stage: Stage, count: int) -> None:
    """`up` of a step dies when the instance of that step has been made, before it is written down."""
    _moved(stage.config, count)
    stage.write()
    name = stage.container(count - 1)
    before = stage.serving[name]
    with BackgroundUp(stage, stage.folder / "release.log") as running:
        wait_until(
            lambda: running.process.poll() is not None or stage.serving.get(name, before) != before,
            f"{name} replaced",
            120,
        )
        assert running.process.poll() is None, running.said()
    prepare_as_make_up_does(stage)


PLAYS = (
    Play(
        number=22,
        title="Pool released GPU by GPU: half, back, killed in a step, to the end",
        holds=f"{NOTHING_LOST}; version 1 by header is answered by version 1 as long as a GPU has it",
        run=released,
    ),
)
