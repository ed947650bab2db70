"""Slots of a deployed pool that another pool comes to share, and has left again: each is one `up`."""

import copy
from pathlib import Path

import pytest

from tests.integration import predict
from tests.integration.docker_cli import DockerCli
from tests.integration.small_stack import free_subnets, small_stack
from tests.pulumi_project import Project
from tests.stacks import Config

STACK = "sharing"


def _shared(config: Config) -> Config:
    shared = copy.deepcopy(config)
    [main] = shared["pools"]
    main |= {"sharing": True, "gpu_memory": {"fraction": 0.4}}
    text = copy.deepcopy(main) | {"name": "text"}
    text["models"][0]["name"] = "other"
    return shared | {"pools": [main, text]}


def _serving(engine: DockerCli) -> set[str]:
    """Names of what runs for good: a publisher or a check of acceptance may still be about to end."""
    running = engine.run(
        "ps", "--filter", f"label=tf-serving.stack={STACK}", "--format", "{{.Names}}"
    ).split()
    return {name for name in running if not name.endswith(("-publisher", "-acceptance", "-drain"))}


@pytest.mark.integration
def test_sharing_is_turned_on_and_off_by_one_up_each(
    project: Project, engine: DockerCli, tmp_path: Path
) -> None:
    alone = small_stack(tmp_path, subnet=free_subnets(1)[0], gpus=[0])
    shared = _shared(alone)
    port = alone["front_end"]["rest_port"]
    envoy = f"{STACK}.here-envoy"
    one, both = {f"{STACK}.here-gpu0"}, {f"{STACK}.here-gpu0-main", f"{STACK}.here-gpu0-text"}
    try:
        for config, there in ((alone, one), (shared, both), (alone, one)):
            project.write_stack(STACK, config)
            done = project.up(STACK)
            assert done.code == 0, done.output
            assert _serving(engine) == there | {envoy}
            for model in {pool["models"][0]["name"] for pool in config["pools"]}:
                assert predict.rest(port, model=model).prediction == 2.5
    finally:
        project.destroy(STACK)
