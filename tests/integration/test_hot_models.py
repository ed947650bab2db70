"""Versions, labels and models change under servers that run; the tests build on each other."""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from images.samples import write_sample_models
from ops.hosts import Host
from ops.unwell import report
from tests.integration import predict
from tests.integration.docker_cli import DockerCli
from tests.integration.small_stack import free_subnets, small_stack
from tests.pulumi_project import Project, Run
from tests.stacks import Config

pytestmark = pytest.mark.integration

STACK = "hot"
MODEL = "half_plus_two"
INSTANCES = {f"{STACK}.here-gpu0", f"{STACK}.here-gpu1"}


@dataclass
class Deployed:
    """A pool of two servers over one folder of models."""

    project: Project
    engine: DockerCli
    config: Config
    models: Path

    def up(self) -> Run:
        self.project.write_stack(STACK, self.config)
        return self.project.up(STACK)

    def servers(self) -> dict[str, str]:
        return {name: identity for name, identity in self.engine.ids().items() if name in INSTANCES}

    def model(self) -> Config:
        return self.config["pools"][0]["models"][0]  # type: ignore[no-any-return]

    def ask(self, path: str = "") -> predict.Answer:
        return predict.rest(self.config["front_end"]["rest_port"], model=f"{MODEL}{path}")

    def over_grpc(self) -> predict.Answer:
        return predict.over_grpc(self.config["front_end"]["grpc_port"])

    def version(self, label: str) -> set[str]:
        """Versions that a label names, on any server."""
        port = self.config["front_end"]["rest_port"]
        url = f"http://127.0.0.1:{port}/v1/models/{MODEL}/labels/{label}/metadata"
        found = set()
        for _ in range(10):
            with urllib.request.urlopen(url, timeout=10) as reply:
                found.add(json.load(reply)["model_spec"]["version"])
        return found


@pytest.fixture(scope="module")
def deployed(
    project: Project, engine: DockerCli, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    models = tmp_path_factory.mktemp("models")
    [subnet] = free_subnets(1)
    config = small_stack(models, subnet=subnet)
    write_sample_models(models, versions=(1, 2))
    [pool] = config["pools"]
    pool |= {"models_folder": str(models), "load_timeout_s": 40}
    # A version that cannot be loaded is given up at once.
    pool["server"] = {"max_num_load_retries": 0, "load_retry_interval_micros": 0}
    pool["models"][0] |= {"versions": {"specific": [1]}, "labels": {"stable": 1}}
    made = Deployed(project, engine, config, models)
    try:
        first = made.up()
        assert first.code == 0, first.output
        yield made
    finally:
        project.destroy(STACK)


def test_a_label_moves_to_a_new_version_with_no_request_lost_and_no_server_replaced(
    deployed: Deployed,
) -> None:
    before = deployed.servers()
    assert deployed.version("stable") == {"1"}
    deployed.model().update({"versions": {"specific": [2]}, "labels": {"stable": 2}})
    with (
        predict.Load(lambda: deployed.ask("/labels/stable"), clients=3) as labelled,
        predict.Load(deployed.ask, clients=2) as rest,
        predict.Load(deployed.over_grpc, clients=1) as over_grpc,
    ):
        changed = deployed.up()
    assert changed.code == 0, changed.output
    for load in (labelled, rest, over_grpc):
        assert set(load.outcomes) == {"answered"}, load.outcomes
    assert deployed.servers() == before
    assert deployed.version("stable") == {"2"}
    assert deployed.project.up(STACK, "--refresh", "--expect-no-changes").code == 0


def test_a_model_comes_and_goes_under_servers_that_run(deployed: Deployed) -> None:
    before = deployed.servers()
    second = deployed.models / "second"
    write_sample_models(second)
    models = deployed.config["pools"][0]["models"]
    models.append({"name": "second", "path": str(second / MODEL)})
    added = deployed.up()
    assert added.code == 0, added.output
    port = deployed.config["front_end"]["rest_port"]
    assert predict.rest(port, model="second").prediction == 2.5
    models.pop()
    with (
        predict.Load(deployed.ask, clients=3) as rest,
        predict.Load(deployed.over_grpc, clients=1) as over_grpc,
    ):
        removed = deployed.up()
    assert removed.code == 0, removed.output
    for load in (rest, over_grpc):
        assert set(load.outcomes) == {"answered"}, load.outcomes
    # Else Envoy would have taken each instance out that does not have it any more.
    log = deployed.engine.run("logs", f"{STACK}.here-envoy-publisher")
    assert "models that go are no longer asked for" in log
    assert predict.rest(port, model="second").status == 404
    assert deployed.servers() == before
    healthy = deployed.engine.run("ps", "--filter", "health=healthy", "--format", "{{.Names}}").split()
    assert set(healthy) >= INSTANCES


def test_a_version_that_is_missing_or_broken_fails_up_with_the_reason_and_the_old_one_serves(
    deployed: Deployed,
) -> None:
    before = deployed.servers()
    broken = deployed.models / MODEL / "3"
    good = dict(deployed.model())
    deployed.model().update({"versions": {"specific": [3]}, "labels": {"stable": 3}})
    for reason in (f"/models/{MODEL} has no version 3, only 2 1", "cannot load version 3 of half_plus_two"):
        failed = deployed.up()
        assert failed.code != 0
        assert "(here-main-config-publisher)" in failed.output
        host = {"here": Host(deployed.engine.docker_host)}
        assert reason in report(STACK, host, failed=True)
        assert deployed.version("stable") == {"2"}
        assert deployed.ask().prediction == 2.5
        broken.mkdir(exist_ok=True)
        (broken / "saved_model.pb").write_text("")
    # Who starts now finds the list that was there before.
    deployed.engine.run("restart", *sorted(INSTANCES))
    deployed.model().update(good)
    healed = deployed.up()
    assert healed.code == 0, healed.output
    assert deployed.servers() == before
    assert deployed.version("stable") == {"2"}
