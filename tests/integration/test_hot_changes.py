"""Routes, shares, limits and pools change on a real engine while clients ask: what serves is not replaced."""

import copy
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.integration import predict
from tests.integration.docker_cli import DockerCli
from tests.integration.small_stack import free_subnets, small_stack
from tests.pulumi_project import Project, Run
from tests.stacks import Config, changed, without

pytestmark = pytest.mark.integration

STACK = "hot"
SERVES = ("here-gpu0", "here-gpu1", "here-envoy")
# Stands before the program: what Envoy is given is then not what it can take.
SABOTAGE = """
from components import envoy_delivery
rendered = envoy_delivery.envoy_files
envoy_delivery.envoy_files = lambda plan: {
    name: text.replace('cluster: "rest-main"', 'cluster: "nobody"') if name == "rds-rest.yaml" else text
    for name, text in rendered(plan).items()
}
"""


@dataclass
class Deployed:
    """A running stack of two instances, and what its file says now."""

    project: Project
    engine: DockerCli
    config: Config

    @property
    def rest_port(self) -> int:
        return int(self.config["front_end"]["rest_port"])

    def up(self, *options: str) -> Run:
        self.project.write_stack(STACK, self.config)
        return self.project.up(STACK, "--suppress-outputs", *options)

    def change(self, config: Config) -> Run:
        """The stack file becomes `config` under load: no request may fail, nothing that serves replaced."""
        self.config = config
        before = self.ids()
        with self.asked():
            done = self.up()
        assert done.code == 0, done.output
        after = self.ids()
        assert {name: after[name] for name in SERVES} == {name: before[name] for name in SERVES}
        return done

    def ids(self) -> dict[str, str]:
        return {name.removeprefix(f"{STACK}."): made for name, made in self.engine.ids().items()}

    @contextmanager
    def asked(self) -> Iterator[None]:
        grpc_port = int(self.config["front_end"]["grpc_port"])
        with (
            predict.Load(lambda: predict.rest(self.rest_port), clients=4) as rest,
            predict.Load(lambda: predict.over_grpc(grpc_port), clients=2) as over_grpc,
        ):
            yield
        for load in (rest, over_grpc):
            assert load.outcomes.keys() == {"answered"}, load.outcomes
            assert load.outcomes["answered"] > 50

    def shares(self, requests: int = 200) -> dict[str, int]:
        answers = [predict.rest(self.rest_port).served_by for _ in range(requests)]
        return {name: answers.count(name) for name in set(answers)}

    def log(self, container: str) -> str:
        command = ["docker", "--host", self.engine.docker_host, "logs", f"{STACK}.{container}"]
        shown = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
        )
        return shown.stdout


@pytest.fixture(scope="module")
def deployed(
    project: Project, engine: DockerCli, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    [subnet] = free_subnets(1)
    found = Deployed(project, engine, small_stack(tmp_path_factory.mktemp("models"), subnet=subnet))
    try:
        first = found.up()
        assert first.code == 0, first.output
        yield found
    finally:
        project.destroy(STACK)


def test_a_limit_changes_and_only_what_brings_the_files_is_replaced(deployed: Deployed) -> None:
    done = deployed.change(changed(deployed.config, "front_end.max_concurrent", 77))
    assert done.changes()["replaced"] == 2
    assert "max_requests: 77" in deployed.engine.run("exec", f"{STACK}.here-envoy", "cat", "/config/cds.yaml")
    again = deployed.up("--refresh", "--expect-no-changes")
    assert again.code == 0, again.output


def test_a_pool_is_added_as_a_canary_its_share_changes_and_it_is_taken_away(deployed: Deployed) -> None:
    [main] = deployed.config["pools"]
    newer = {**copy.deepcopy(main), "name": "newer", "slots": [{"node": "here", "gpus": [2]}]}
    canary = {**main, "traffic": {"canary": {"pool": "newer", "percent": 50}}}
    deployed.change(changed(deployed.config, "pools", [canary, newer]))
    # Of 200 requests, 50 % is 58 to 142 but for one run in a billion.
    assert 58 <= deployed.shares()["here-gpu2"] <= 142

    deployed.change(changed(deployed.config, "pools[0].traffic.canary.percent", 100))
    assert deployed.shares() == {"here-gpu2": 200}

    deployed.change(changed(deployed.config, "pools[0].traffic.canary.percent", 0))
    assert deployed.shares().keys() == {"here-gpu0", "here-gpu1"}

    deployed.change(changed(deployed.config, "pools", [main]))
    assert deployed.shares().keys() == {"here-gpu0", "here-gpu1"}
    assert "here-gpu2" not in deployed.ids()


def test_an_instance_is_added_and_taken_away(deployed: Deployed) -> None:
    slots = "pools[0].slots[0].gpus"
    deployed.change(changed(deployed.config, slots, [0, 1, 3]))
    assert deployed.shares().keys() == {"here-gpu0", "here-gpu1", "here-gpu3"}
    deployed.change(changed(deployed.config, slots, [0, 1]))
    assert deployed.shares().keys() == {"here-gpu0", "here-gpu1"}


def test_what_envoy_does_not_take_fails_up_with_envoys_reason_and_changes_nothing(
    deployed: Deployed,
) -> None:
    program = deployed.project.folder / "__main__.py"
    sound = program.read_text()
    docstring, rest = sound.split("\n", 1)
    before = deployed.ids()
    program.write_text(f"{docstring}\n{SABOTAGE}{rest}")
    try:
        with deployed.asked():
            failed = deployed.up()
    finally:
        program.write_text(sound)
    assert failed.code != 0
    assert "(here-envoy-config-publisher)" in failed.output
    log = deployed.log("here-envoy-publisher")
    assert "Envoy refused: rds-rest.yaml" in log
    assert "route: unknown cluster 'nobody'" in log
    assert "FAILED: Envoy does not take these files; nothing was changed" in log
    after = deployed.ids()
    assert {name: after[name] for name in SERVES} == {name: before[name] for name in SERVES}
    assert deployed.up().code == 0
    assert deployed.up("--expect-no-changes").code == 0


def test_what_envoy_reads_as_it_starts_replaces_it_and_it_serves_the_new_files(deployed: Deployed) -> None:
    deployed.config = without(
        changed(deployed.config, "front_end.memory_mib", 600), "front_end.max_concurrent"
    )
    before = deployed.ids()
    done = deployed.up()
    assert done.code == 0, done.output
    after = deployed.ids()
    assert {name for name in SERVES if before[name] != after[name]} == {"here-envoy"}
    assert deployed.shares().keys() == {"here-gpu0", "here-gpu1"}
    assert "max_requests: 4096" in deployed.engine.run(
        "exec", f"{STACK}.here-envoy", "cat", "/config/cds.yaml"
    )
    assert deployed.up("--refresh", "--expect-no-changes").code == 0
