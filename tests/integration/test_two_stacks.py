"""Two stacks on one engine, and the renamings of a pool and a node; the tests build on each other."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from components.contract import read_outputs
from tests.envoy.harness import wait_for
from tests.integration import predict
from tests.integration.consumer import Consumer
from tests.integration.docker_cli import DockerCli
from tests.integration.small_stack import free_subnets, small_stack
from tests.pulumi_project import Project
from tests.stacks import Config

pytestmark = pytest.mark.integration

FIRST, SECOND = "first", "second"


@dataclass(frozen=True)
class Both:
    """The two stacks as they are deployed now."""

    project: Project
    engine: DockerCli
    configs: dict[str, Config]

    def up(self, stack: str) -> dict[str, int]:
        """Deploy the stack as its configuration stands, and say what changed."""
        self.project.write_stack(stack, self.configs[stack])
        done = self.project.up(stack)
        assert done.code == 0, done.output
        return done.changes()

    def nothing_left_to_do(self, stack: str) -> bool:
        """Whether an `up` with refresh finds everything as it is wanted."""
        return self.project.up(stack, "--refresh", "--expect-no-changes").code == 0

    def ids(self, stack: str) -> dict[str, str]:
        """The container ids of one stack, by name."""
        return {name: i for name, i in self.engine.ids().items() if name.startswith(f"{stack}.")}

    def urns(self, stack: str) -> set[str]:
        """Every URN of a stack, from its kind on."""
        state = json.loads(self.project.pulumi("stack", "export", "--stack", stack).output)
        return {resource["urn"].split("::", 2)[2] for resource in state["deployment"]["resources"]}

    def served_by(self, stack: str) -> set[str]:
        """Who answers predictions sent to a stack; fails where one is not answered."""
        port = self.configs[stack]["front_end"]["rest_port"]
        answers = [predict.rest(port) for _ in range(20)]
        assert {answer.prediction for answer in answers} == {2.5}, answers
        return {answer.served_by for answer in answers}


@pytest.fixture(scope="module")
def both(project: Project, engine: DockerCli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    models = tmp_path_factory.mktemp("models")
    subnets = dict(zip((FIRST, SECOND), free_subnets(2), strict=True))
    deployed = Both(
        project, engine, {stack: small_stack(models, subnet=subnet) for stack, subnet in subnets.items()}
    )
    try:
        deployed.up(FIRST)
        yield deployed
    finally:
        for stack in (FIRST, SECOND):
            project.destroy(stack)


def test_a_second_stack_on_the_engine_leaves_the_first_alone(both: Both) -> None:
    before = both.ids(FIRST)
    assert both.up(SECOND) == {"created": 24}
    assert both.ids(FIRST) == before
    assert both.engine.ids().keys() == before.keys() | both.ids(SECOND).keys()
    for stack in (FIRST, SECOND):
        wait_for(f"{stack} answers", lambda stack=stack: len(both.served_by(stack)) == 2)  # type: ignore[misc]
        assert both.nothing_left_to_do(stack)


def test_another_program_reads_each_stack_as_it_is_deployed(both: Both, tmp_path: Path) -> None:
    consumer = Consumer(both.project, tmp_path, SECOND)
    ran = consumer.up()
    assert ran.code == 0, ran.output
    outputs = read_outputs(both.project.outputs(SECOND))
    assert outputs.rest_url.endswith(f":{both.configs[SECOND]['front_end']['rest_port']}")
    assert consumer.outputs()["predict_urls"] == {
        "half_plus_two": [f"{outputs.rest_url}/v1/models/half_plus_two:predict"]
    }


def test_a_change_of_one_stack_reaches_no_container_of_the_other(both: Both) -> None:
    others = both.ids(SECOND)
    both.configs[FIRST]["pools"][0]["log_level"] = "error"
    # Two servers, what drains each, and what sees that nobody is left drained.
    assert both.up(FIRST)["replaced"] == 2 + 2 + 1
    assert both.ids(SECOND) == others


def test_a_renamed_pool_is_rolled_to_another_volume_and_keeps_the_urns_of_its_instances(both: Both) -> None:
    ids, urns = both.ids(FIRST), both.urns(FIRST)
    pool = both.configs[FIRST]["pools"][0]
    pool |= {"name": "other", "renamed_from": "main"}
    # Two servers, what drains each, what brings Envoy its files, the volume and what fills it.
    assert both.up(FIRST).get("replaced") == 8
    assert ids.keys() ^ both.ids(FIRST).keys() == {"first.here-main-publisher", "first.here-other-publisher"}
    assert _volumes(both, FIRST) == {"first.here-envoy-config", "first.here-other-config"}
    renamed = ("config", "config-volume", "config-publisher")
    assert {urn.rpartition("::")[2] for urn in urns ^ both.urns(FIRST)} == {
        "main-batching",
        "other-batching",
        *(f"here-{name}-{part}" for name in ("main", "other") for part in renamed),
    }
    del pool["renamed_from"]
    assert both.up(FIRST).keys() == {"unchanged"}


def _volumes(both: Both, stack: str) -> set[str]:
    return {name for name in both.engine.names("volume") if name.startswith(f"{stack}.")}


def test_a_renamed_node_is_rolled_one_instance_at_a_time_and_leaves_no_orphan(both: Both) -> None:
    others, networks = both.ids(SECOND), both.engine.names("network")
    config = both.configs[FIRST]
    config["nodes"][0] |= {"name": "there", "renamed_from": "here"}
    config["pools"][0]["slots"][0]["node"] = "there"
    with both.engine.lives() as lives:
        assert both.up(FIRST).get("replaced") == 3 + 2 + 2 + 3
    assert [life for life in lives if "gpu" in life[0] and not life[0].endswith("-drain")] == [
        ("first.here-gpu0", "die"),
        ("first.there-gpu0", "health_status: healthy"),
        ("first.here-gpu1", "die"),
        ("first.there-gpu1", "health_status: healthy"),
    ]
    instances = ("gpu0", "gpu1", "gpu0-drain", "gpu1-drain")
    there = (*instances, "envoy", "envoy-publisher", "envoy-acceptance", "other-publisher")
    assert both.ids(FIRST).keys() == {f"first.there-{name}" for name in there}
    assert _volumes(both, FIRST) == {"first.there-envoy-config", "first.there-other-config"}
    assert (both.ids(SECOND), both.engine.names("network")) == (others, networks)
    del config["nodes"][0]["renamed_from"]
    assert both.up(FIRST).keys() == {"unchanged"}
    assert both.nothing_left_to_do(FIRST)
    wait_for("both answer", lambda: both.served_by(FIRST) == {"there-gpu0", "there-gpu1"})


def test_a_destroyed_stack_leaves_the_other_answering(both: Both) -> None:
    others = both.ids(FIRST)
    gone = both.project.destroy(SECOND)
    assert gone.code == 0, gone.output
    assert both.engine.ids() == others
    assert both.served_by(FIRST) == {"there-gpu0", "there-gpu1"}
    both.project.destroy(FIRST)
    assert both.engine.names("network") == {"bridge", "host", "none"}
