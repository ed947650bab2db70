"""A model leaves the servers of a pool while Envoy, and its clients, go on with the others."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from components.plan import FrontEndPlan
from tests.envoy.ground import Said, run_script
from tests.envoy.harness import Site, site, wait_for
from tests.envoy.load import load_on
from tests.envoy.pools import SmallPool

pytestmark = pytest.mark.envoy

POOL = SmallPool(instances=4, models=["resnet", "bert"])
# Three checks, one a second, until an instance counts as down; and one more.
_NOTICED_S = 5


@pytest.fixture
def four(envoy_binary: Path, tmp_path: Path) -> Iterator[Site]:
    with site(envoy_binary, tmp_path, [POOL]) as made:
        yield made


def with_models(plan: FrontEndPlan, *names: str) -> FrontEndPlan:
    [pool] = plan.pools
    models = tuple(model for model in pool.models if model.name in names)
    return replace(plan, pools=(replace(pool, models=models),))


def stage(made: Site, plan: FrontEndPlan) -> Said:
    """What Envoy's publisher does, before any server is changed."""
    new = made.log.parent / "new"
    new.mkdir(exist_ok=True)
    for file in new.iterdir():
        file.unlink()
    made.ground.write(plan, new)
    where = (new, made.ground.folder, "127.0.0.1", made.ground.status_port)
    return run_script("stage", *where, work=made.log.parent / "work")


def lowest(made: Site, seconds: float) -> int:
    """The least number of instances that get requests, as long as it takes Envoy to notice a change."""
    until, found = time.monotonic() + seconds, 99
    while time.monotonic() < until:
        found = min(found, made.healthy("rest-main"), made.healthy("grpc-main"))
        time.sleep(0.05)
    return found


def test_no_instance_is_taken_out_while_a_model_leaves_one_server_after_the_other(four: Site) -> None:
    fewer = with_models(four.plan, "resnet")
    with load_on(four, "rest") as load:
        said = stage(four, fewer)
        assert said.code == 0, said.said
        assert "models that go are no longer asked for" in said.said
        for backend in four.backends.values():
            backend.behave({"states": {"bert": ["END"]}})
        assert lowest(four, _NOTICED_S) == 4
        assert four.publish(fewer).code == 0
        assert four.predict("bert").status == 404
        load.more(100)
    assert load.failures == []


def test_what_is_put_back_does_not_ask_for_models_that_have_left(four: Site) -> None:
    assert four.publish(four.plan).code == 0
    fewer = with_models(four.plan, "resnet")
    assert stage(four, fewer).code == 0
    for backend in four.backends.values():
        backend.behave({"states": {"bert": ["END"]}})
    said = four.publish(fewer, ("cds.yaml", "connect_timeout", "conect_timeout"), patience_s=5)
    assert said.code == 1
    assert lowest(four, _NOTICED_S) == 4


def test_a_pool_that_keeps_none_of_its_models_is_asked_for_those_that_it_has(four: Site) -> None:
    bert, resnet = with_models(four.plan, "bert"), with_models(four.plan, "resnet")
    assert four.publish(bert).code == 0
    said = stage(four, resnet)
    assert (said.code, "no longer" in said.said) == (0, False), said.said
    for backend in four.backends.values():
        backend.behave({"states": {"bert": ["END"]}})
    wait_for("they count as down", lambda: four.healthy("rest-main") == 0)


def test_a_stage_that_takes_nothing_away_touches_nothing_that_envoy_reads(four: Site) -> None:
    assert four.publish(with_models(four.plan, "resnet")).code == 0
    before = {path: path.stat().st_mtime_ns for path in four.ground.folder.iterdir() if path.is_file()}
    assert stage(four, four.plan).code == 0
    after = {path: path.stat().st_mtime_ns for path in four.ground.folder.iterdir() if path.is_file()}
    assert after == before
