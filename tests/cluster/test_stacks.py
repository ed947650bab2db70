"""The program itself on Kubernetes, with the real provider: stacks that are rendered to a folder."""

import os
from pathlib import Path

import pytest
import yaml

from components.stack_file import load_stack_file, own_values
from tests import golden
from tests.kubernetes_stacks import rendered_to
from tests.manifests import VERSIONS, problems
from tests.pulumi_project import CHECKOUT, Project
from tests.stacks import Config, changed
from toolchain.python_env import ensure_policy_venv
from toolchain.tools import Toolchain

pytestmark = [pytest.mark.integration, pytest.mark.cluster]

_STACKS: dict[str, Config] = {
    stack: own_values(yaml.safe_load(file.read_text())["config"])
    for stack, file in golden.stack_files().items()
}
_OF_A_CLUSTER = ("kubeconfig", "context")


def _rendered(config: Config, stack: str) -> Config:
    """The same into a folder, also where the stack reaches a cluster."""
    cluster = {key: value for key, value in config["cluster"].items() if key not in _OF_A_CLUSTER}
    return config | {"cluster": {"render_to": f"./rendered/{stack}"} | cluster}


RENDERED = {
    stack: _rendered(config, stack)
    for stack, config in _STACKS.items()
    if config.get("target") == "kubernetes"
}


@pytest.fixture
def project(tmp_path: Path, kubernetes_toolchain: Toolchain) -> Project:
    # A kubeconfig in the environment, as most people have one: it must not be looked at.
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "missing")}
    return Project(tmp_path, kubernetes_toolchain, env)


def files(project: Project, config: Config) -> dict[str, str]:
    folder = project.folder / config["cluster"]["render_to"]
    return {file.name: file.read_text() for file in sorted(folder.rglob("*.yaml"))}


@pytest.mark.parametrize("stack", RENDERED)
def test_a_committed_stack_is_rendered_once_and_a_second_up_changes_nothing(
    project: Project, stack: str
) -> None:
    config = RENDERED[stack]
    project.write_stack(stack, config)
    assert files(project, config) == {}
    made = project.up(stack)
    assert made.code == 0, made.output
    first = files(project, config)
    assert len(first) == made.changes()["created"] - 3, "all but the stack, the component and the provider"
    for text in first.values():
        manifest = yaml.safe_load(text)
        assert [problem for version in VERSIONS for problem in problems(manifest, version)] == []
    again = project.up(stack)
    assert set(again.changes()) == {"unchanged"}, again.output
    assert files(project, config) == first
    assert project.destroy(stack).code == 0
    assert files(project, config) == {}


def lock(project: Project, config: Config) -> None:
    """Write what `make pin` would, with digests of this test's own."""
    volumes = (pool["model_volume"].get("image") for pool in config["pools"])
    images = [*config["images"].values(), *filter(None, volumes)]
    lines = "".join(f"  {image}: sha256:{'0' * 64}\n" for image in images)
    (project.folder / "images.lock.yaml").write_text(f"images:\n{lines}")


@pytest.mark.parametrize("stack", RENDERED)
def test_a_preview_meets_the_policy_pack_without_a_finding_and_writes_nothing(
    project: Project, stack: str
) -> None:
    ensure_policy_venv()
    config = RENDERED[stack]
    environment = load_stack_file(golden.stack_files()[stack]).environment
    lock(project, config)
    project.write_stack(stack, config)
    pack = CHECKOUT / "policies"
    planned = project.preview(
        stack, f"--policy-pack={pack}", f"--policy-pack-config={pack}/config/{environment}.json"
    )
    assert planned.code == 0, planned.output
    assert "Policies:" in planned.output, "the pack was asked"
    for found in ("mandatory", "advisory", "can't run policy"):
        assert found not in planned.output, planned.output
    assert files(project, config) == {}


@pytest.mark.parametrize(
    ("path", "value", "touched"),
    [
        ("pools[0].batching.batch_timeout_micros", 5000, {"deployment-serving-test-main"}),
        ("front_end", {"user_header": "x-account"}, set()),
        (
            "front_end",
            {"request_ids": {"in_answers": False}},
            {"configmap-serving-test-envoy-files"},
        ),
        ("front_end", {"max_replicas": 6}, {"horizontalpodautoscaler-serving-test-envoy"}),
        (
            "pools[0].nodes.disruptions",
            {"max_unavailable": 2},
            {"poddisruptionbudget-serving-test-main"},
        ),
        (
            "pools[0].models[0].versions",
            {"specific": [1, 2]},
            {"configmap-serving-test-main-models", "configmap-serving-test-envoy-files"},
        ),
    ],
)
def test_a_change_touches_the_files_that_it_must_and_no_other(
    project: Project, path: str, value: object, touched: set[str]
) -> None:
    config = rendered_to()
    project.write_stack("test", config)
    assert project.up("test").code == 0
    before = files(project, config)
    project.write_stack("test", changed(config, path, value))
    run = project.up("test")
    assert run.code == 0, run.output
    after = files(project, config)
    differ = {name for name in before.keys() & after.keys() if before[name] != after[name]}
    assert {_what(name) for name in differ} == touched
    # What is read once has the hash of its text in its name: the new file comes, and the old one goes. So
    # has the Job that asks for what is read again.
    assert {_what(name) for name in after.keys() - before.keys()} <= {
        "configmap-serving-test-main-files",
        "configmap-serving-test-acceptance-files",
        "job-serving-test-acceptance",
    }
    assert len(after) == len(before)


def _what(file: str) -> str:
    """`configmap-serving-test-main-files` of its name: without the group, and without a hash."""
    stem = file.removesuffix(".yaml").split("-", 1)[1]
    name, _, last = stem.rpartition("-")
    return name if len(last) in (8, 10) and all(each in "0123456789abcdef" for each in last) else stem


def test_nothing_secret_is_rendered(project: Project) -> None:
    config = changed(rendered_to(), "front_end", {"tls": {}})
    project.write_stack("test", config)
    refused = project.preview("test")
    assert refused.code != 0
    assert "front_end.tls: is for Docker; on Kubernetes name a Secret" in refused.output
    assert "Traceback" not in refused.output
