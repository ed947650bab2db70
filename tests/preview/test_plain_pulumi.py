"""Pulumi without `make` meets the policy pack where the environment names it."""

import json
import shutil
from pathlib import Path

import pytest

from tests.preview.raw_program import PACK, RAW, server
from tests.pulumi_project import Project
from toolchain.python_env import ensure_policy_venv

pytestmark = pytest.mark.preview


@pytest.fixture
def shared_gpu(project: Project) -> Project:
    """A program whose two servers are on one GPU."""
    ensure_policy_venv()
    (project.folder / "__main__.py").write_text(RAW)
    project.write_stack("raw", {"containers": json.dumps({"a": server(0), "b": server(0)})})
    return project


def test_plain_pulumi_meets_the_pack_where_the_environment_names_it_from_any_folder(
    shared_gpu: Project, tmp_path: Path
) -> None:
    project = shared_gpu
    project.env |= {
        "PULUMI_OPTION_POLICY_PACK": str(PACK),
        "PULUMI_OPTION_POLICY_PACK_CONFIG": f"{PACK}/config/prod.json",
    }
    arguments = ("preview", "--stack", "raw", "--cwd", str(project.folder))
    there = project.pulumi(*arguments, check=False, cwd=tmp_path)
    assert there.code != 0
    assert "is owned by" in there.output
    # The configuration is the one that is named: an advisory level lets it pass, and still says so.
    lenient = tmp_path / "lenient.json"
    lenient.write_text(json.dumps({"all": "advisory"}))
    project.env["PULUMI_OPTION_POLICY_PACK_CONFIG"] = str(lenient)
    said = project.preview("raw")
    assert said.code == 0, said.output
    assert "is owned by" in said.output


def test_a_plain_up_is_refused_before_anything_is_made_by_paths_as_the_docs_give_them(
    shared_gpu: Project,
) -> None:
    (shared_gpu.folder / "policies").symlink_to(PACK)
    shared_gpu.env |= {
        "PULUMI_OPTION_POLICY_PACK": "policies",
        "PULUMI_OPTION_POLICY_PACK_CONFIG": "policies/config/prod.json",
    }
    refused = shared_gpu.pulumi("up", "--yes", "--stack", "raw", check=False)
    assert refused.code != 0
    assert "is owned by" in refused.output
    state = json.loads(shared_gpu.pulumi("stack", "export", "--stack", "raw").output)
    assert "docker:index/container:Container" not in [
        one["type"] for one in state["deployment"].get("resources") or []
    ]


def test_pulumi_install_makes_the_environment_of_the_pack(shared_gpu: Project, tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    shutil.copytree(PACK, pack, ignore=shutil.ignore_patterns(".venv", "__pycache__"))
    shared_gpu.pulumi("install", cwd=pack)
    assert (pack / ".venv" / "bin" / "python").exists()
    refused = shared_gpu.preview("raw", f"--policy-pack={pack}")
    assert refused.code != 0
    assert "is owned by" in refused.output
