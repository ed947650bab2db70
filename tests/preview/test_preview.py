"""Previews with the real CLI and no engine: what a pull request's check sees."""

from pathlib import Path

import pytest
import yaml

from components.stack_file import own_values
from tests.pulumi_project import CHECKOUT, Project
from tests.stacks import Config, one_node, two_nodes

pytestmark = pytest.mark.preview


def committed(stack: str) -> Config:
    document = yaml.safe_load((CHECKOUT / f"Pulumi.{stack}.yaml").read_text())
    return own_values(document["config"])


def test_prod_previews_with_no_access_to_its_host(project: Project) -> None:
    config = committed("prod")
    assert config["nodes"][0]["docker"]["endpoint"].startswith("ssh://")
    project.write_stack("prod", config)
    planned = project.preview("prod")
    assert (planned.code, planned.changes()) == (0, {"to create": 30}), planned.output


def test_two_nodes_preview_with_a_front_end_and_a_provider_for_each(project: Project) -> None:
    project.write_stack("two", two_nodes())
    planned = project.preview("two")
    assert planned.code == 0, planned.output
    for wanted in ("gpu-01-envoy-proxy", "gpu-02-envoy-proxy", "gpu-01-docker", "gpu-02-docker"):
        assert f" {wanted} create" in planned.output
    assert "http://gpu-01.example.com:8080" in planned.output
    assert "http://10.0.0.2:8080" in planned.output


def test_no_provider_is_made_by_default(project: Project) -> None:
    project.write_stack("test", one_node())
    assert "default_5" not in project.preview("test").output


def test_every_problem_of_a_bad_stack_file_is_printed_and_the_command_fails(project: Project) -> None:
    broken = one_node()
    broken["pools"][0]["batching"]["allowed_batch_sizes"] = [1, 8]
    broken["front_end"] = {"rest_prot": 80}
    project.write_stack("test", broken)
    refused = project.preview("test")
    assert refused.code != 0
    assert "Pulumi.test.yaml: 2 problems; nothing was changed" in refused.output
    assert "pools[0].batching.allowed_batch_sizes: [1, 8]: the last size must equal" in refused.output
    assert "front_end.rest_prot: 80: unknown key; did you mean rest_port?" in refused.output
    assert "Traceback" not in refused.output


def test_a_setting_that_is_not_an_object_is_refused_like_any_other(project: Project) -> None:
    project.write_stack("test", {**one_node(), "rollout": "fast"})
    refused = project.preview("test")
    assert refused.code != 0
    assert "rollout: 'fast':" in refused.output
    assert "Traceback" not in refused.output


def test_a_preview_started_in_another_folder_is_the_same(project: Project, tmp_path: Path) -> None:
    project.write_stack("test", one_node())
    here = project.preview("test")
    arguments = ("preview", "--stack", "test", "--cwd", str(project.folder))
    there = project.pulumi(*arguments, check=False, cwd=tmp_path)
    assert there.changes() == here.changes() == {"to create": 30}
