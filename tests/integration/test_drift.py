"""`make drift` on a real engine: a container that somebody altered behind Pulumi's back."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from ops.drift import Look, look, report
from ops.hosts import Host
from ops.inspection import declared
from tests.integration.docker_cli import DockerCli
from tests.integration.drill import Drill, DrillStack, heal
from tests.integration.small_stack import free_subnets, small_stack
from tests.pulumi_project import Project

pytestmark = pytest.mark.integration

STACK = "drift"
SERVER = f"{STACK}.here-gpu0"


class LookedAt(DrillStack):
    """The drill's stack, as `make drift` asks it."""

    def _captured(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return self._in_project(*arguments)


@pytest.fixture(scope="module")
def drill(project: Project, engine: DockerCli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    [subnet] = free_subnets(1)
    config = small_stack(tmp_path_factory.mktemp("models"), subnet=subnet, gpus=[0])
    made = Drill(project, engine, STACK, config)
    made.write()
    try:
        first = project.up(STACK)
        assert first.code == 0, first.output
        yield made
    finally:
        made.destroy()


def looked(drill: Drill) -> Look:
    seen = DrillStack.of(drill)
    stack = LookedAt(name=seen.name, pulumi=seen.pulumi, env=seen.env, backend=seen.backend)
    return look(stack, {"here": Host(drill.engine.docker_host)})


def differences(found: Look) -> set[tuple[str, str]]:
    return {(one.container.name, one.what) for one in found.found}


def test_what_was_just_deployed_has_not_drifted(drill: Drill) -> None:
    found = looked(drill)
    assert (found.changes, list(found.found)) == (False, []), found.said
    assert report(STACK, found).startswith(f"No drift in stack {STACK}")


@pytest.mark.parametrize("name", ["models", "eds-rest-", "rds-rest.yaml"])
def test_a_file_that_was_changed_on_a_volume_is_seen_though_pulumi_sees_nothing(
    drill: Drill, tmp_path: Path, name: str
) -> None:
    resources = json.loads(DrillStack.of(drill).query("stack", "export"))["deployment"]["resources"]
    containers = [declared(one) for one in resources if one["type"] == "docker:index/container:Container"]
    holder, file, text = next(
        (one, file, text)
        for one in containers
        for file, text in one.files.items()
        if file.startswith(f"/volume/{name}")
    )
    (tmp_path / "file").write_text(f"{text}# by hand\n")
    drill.engine.run("cp", str(tmp_path / "file"), f"{holder.name}:{file}")
    found = looked(drill)
    assert differences(found) == {(holder.name, f"file {file}")}
    assert not found.changes, found.said
    (tmp_path / "file").write_text(text)
    drill.engine.run("cp", str(tmp_path / "file"), f"{holder.name}:{file}")
    assert looked(drill).clean


def test_a_container_made_anew_by_hand_is_told_with_its_environment_and_labels(drill: Drill) -> None:
    there = cast("dict[str, Any]", drill.engine.inspect(SERVER))
    config = there["Config"]
    labels = {**config["Labels"], "tf-serving.gpu": "another", "added": "by hand"}
    variables = [*config["Env"], "ADDED=secret"]
    mounts = [
        f"--mount=type=bind,source={one['Source']},target={one['Destination']},readonly"
        for one in there["Mounts"]
        if one["Type"] == "bind"
    ]
    drill.engine.run("rm", "--force", SERVER)
    drill.engine.run(
        "create",
        f"--name={SERVER}",
        *(f"--label={name}={value}" for name, value in labels.items()),
        *(f"--env={one}" for one in variables),
        *mounts,
        str(config["Image"]),
    )
    found = looked(drill)
    wanted = {"container", "label tf-serving.gpu", "label added", "environment ADDED"}
    assert {(SERVER, what) for what in wanted} <= differences(found)
    assert found.changes
    text = report(STACK, found)
    assert text.startswith(f"Drift in stack {STACK}.")
    assert "another one" in text
    assert "secret" not in text
    # What the report says to type puts it right.
    heal(drill)
    mended = drill.project.up(STACK)
    assert mended.code == 0, mended.output
    assert looked(drill).clean
