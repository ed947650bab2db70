"""Pulumi is killed with all its plugins at a point of an `up`: `make up` goes on, or `make heal` cleans up.

The points lie where state and engine differ (made, and not yet written down) and between those.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from images.build import ensure_images
from ops.engine import PrivateEngine
from tests.integration.docker_cli import DockerCli
from tests.integration.drill import (
    BackgroundUp,
    Drill,
    environment,
    heal,
    local_config,
    prepare_as_make_up_does,
    wait_until,
)
from tests.pulumi_project import Project
from toolchain.tools import Toolchain

pytestmark = pytest.mark.integration

STACK = "killed"
FIRST, SECOND, FRONT, FILES = (
    f"{STACK}.local-{name}" for name in ("gpu0", "gpu1", "envoy", "main-publisher")
)


@pytest.fixture(scope="module")
def own_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerCli]:
    made = PrivateEngine(tmp_path_factory.mktemp("engine"))
    made.start()
    try:
        ensure_images(made.docker_host)
        yield DockerCli(made.docker_host)
    finally:
        made.remove()


@pytest.fixture
def drill(own_engine: DockerCli, toolchain: Toolchain, tmp_path: Path) -> Iterator[Drill]:
    project = Project(tmp_path, toolchain, environment(own_engine.docker_host))
    config = local_config(tmp_path / "models")
    config["pools"][0]["slots"] = [{"node": "local", "gpus": [0, 1]}]
    made = Drill(project, own_engine, STACK, config)
    made.write()
    try:
        yield made
        made.destroy()
    finally:
        _take_away(own_engine)


def _take_away(engine: DockerCli) -> None:
    """What a failed test left in this module's own engine must not fail the next one."""
    if containers := engine.names("container"):
        engine.run("rm", "--force", "--volumes", *containers)
    engine.run("network", "prune", "--force")
    if volumes := engine.names("volume"):
        engine.run("volume", "rm", *volumes)


@dataclass(frozen=True)
class Point:
    """A moment of an `up`: when Pulumi has printed something, or when the engine has something."""

    name: str
    printed: str = ""
    there: Callable[[DockerCli], bool] = lambda _engine: True

    def reached(self, running: BackgroundUp, engine: DockerCli) -> bool:
        """Whether it has come."""
        return self.printed in running.said() and self.there(engine)

    def __str__(self) -> str:
        return self.name


def _network(name: str) -> Callable[[DockerCli], bool]:
    return lambda engine: f"{STACK}-{name}" in engine.names("network")


def _container(name: str, state: str) -> Callable[[DockerCli], bool]:
    return lambda engine: (
        name in engine.run("ps", "--all", "--filter", f"status={state}", "--format", "{{.Names}}").split()
    )


def _volume(engine: DockerCli) -> bool:
    return f"{STACK}.local-main-config" in engine.names("volume")


NETWORK_MADE = Point("a network is made", there=_network("serving"))
CONTAINER_MADE = Point("the first container runs", there=_container(FIRST, "running"))
IN_CI = [NETWORK_MADE, CONTAINER_MADE]
FURTHER = [
    Point("the program has begun", "ServingDeployment serving creating"),
    Point("the provider is made", "local-docker created"),
    Point("a network is announced", "Network local-serving creating"),
    Point("the network is written down", "Network local-serving created"),
    Point("a volume is made", there=_volume),
    Point("files are being published", there=_container(FILES, "running")),
    Point("files are published", "local-main-config-publisher created"),
    Point("a container is announced", "Container local-gpu0-server creating"),
    Point("the front end runs", there=_container(FRONT, "running")),
    Point("the first container is written down", "local-gpu0-server created"),
    Point("the second container runs", there=_container(SECOND, "running")),
]
POINTS = [*IN_CI, *(pytest.param(point, marks=pytest.mark.drill, id=str(point)) for point in FURTHER)]


def _killed_at(point: Point, drill: Drill, folder: Path) -> None:
    with BackgroundUp(drill, folder / "up.log") as running:
        wait_until(
            lambda: running.process.poll() is not None or point.reached(running, drill.engine), str(point)
        )
        assert running.process.poll() is None, running.said()


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_make_up_goes_on_after_a_kill_and_nothing_is_left_over(
    point: Point, drill: Drill, tmp_path: Path
) -> None:
    _killed_at(point, drill, tmp_path)
    prepare_as_make_up_does(drill)
    drill.up()


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_make_heal_removes_what_the_state_does_not_know_and_up_then_makes_the_plan(
    point: Point, drill: Drill, tmp_path: Path
) -> None:
    _killed_at(point, drill, tmp_path)
    bystander = drill.engine.run(
        "create", "--label=tf-serving.stack=another", "--label=tf-serving.node=local", _image(drill), "x"
    )
    heal(drill)
    assert drill.engine.run("ps", "--all", "--quiet", "--no-trunc", "--filter", f"id={bystander}")
    drill.engine.run("rm", bystander)
    drill.up()


def _image(drill: Drill) -> str:
    return str(drill.config["images"]["server"])


@pytest.mark.drill
def test_a_rolling_change_that_is_killed_between_two_containers_is_finished_by_the_next_up(
    drill: Drill, tmp_path: Path
) -> None:
    drill.up()
    before = drill.engine.ids()
    drill.config["pools"][0]["batching"]["batch_timeout_micros"] = 3000
    drill.write()
    replaced = Point("replaced", there=lambda engine: engine.ids().get(FIRST, before[FIRST]) != before[FIRST])
    _killed_at(replaced, drill, tmp_path)
    assert drill.answers() >= {"local-gpu1"}
    prepare_as_make_up_does(drill)
    drill.up()
    after = drill.engine.ids()
    assert {name for name in after if after[name] == before[name]} == {FRONT, f"{FRONT}-publisher"}
