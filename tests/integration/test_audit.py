"""The audit over the state of a stack that is deployed: clean as it is, and not once something is broken."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from ops.policy import PACK
from tests.integration.small_stack import free_subnets, small_stack, uuid
from tests.pulumi_project import Project
from toolchain.python_env import ensure_policy_venv

pytestmark = pytest.mark.integration
STACK = "audited"


def audited(state: str) -> subprocess.CompletedProcess[str]:
    command = [str(ensure_policy_venv()), "-m", "audit", "--environment", "local", "--json", "state"]
    env = {**os.environ, "PYTHONPATH": str(PACK)}
    return subprocess.run(command, env=env, input=state, capture_output=True, text=True, check=False)


def test_what_is_deployed_keeps_every_rule_until_its_state_says_otherwise(
    project: Project, tmp_path: Path
) -> None:
    [subnet] = free_subnets(1)
    project.write_stack(STACK, small_stack(tmp_path / "models", subnet=subnet))
    made = project.up(STACK)
    assert made.code == 0, made.output
    try:
        state = project.pulumi("stack", "export", "--stack", STACK).output
    finally:
        destroyed = project.destroy(STACK)
    assert destroyed.code == 0, destroyed.output

    clean = audited(state)
    assert (clean.returncode, json.loads(clean.stdout)) == (0, []), clean.stderr

    assert uuid(1) in state
    shared = audited(state.replace(uuid(1), uuid(0)))
    assert shared.returncode == 1
    [row] = [row for row in json.loads(shared.stdout) if row["rule"] == "one-model-per-gpu"]
    assert row["level"] == "mandatory"
    assert f"GPU {uuid(0)} is owned by" in row["value"]
