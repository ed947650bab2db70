"""What no workflow may do: run the code of strangers with a secret, or with a token that can write."""

import re
from typing import Any, cast

import pytest
import yaml

from tests.pulumi_project import CHECKOUT

FILES = sorted((CHECKOUT / ".github" / "workflows").glob("*.yml"))
WORKFLOWS: dict[str, dict[Any, Any]] = {file.name: yaml.safe_load(file.read_text()) for file in FILES}
# YAML reads the key `on` as a truth value.
EVENTS = {name: set(workflow[True]) for name, workflow in WORKFLOWS.items()}


def steps(workflow: dict[Any, Any], *jobs: str) -> list[dict[str, Any]]:
    chosen = [job for name, job in workflow["jobs"].items() if not jobs or name in jobs]
    return [step for job in chosen for step in job["steps"]]


def written(permissions: object) -> set[str]:
    assert isinstance(permissions, dict), "each permission is named"
    return {name for name, level in permissions.items() if level == "write"}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned_by_full_version_or_commit(name: str) -> None:
    used = [step["uses"] for step in steps(WORKFLOWS[name]) if "uses" in step]
    assert [one for one in used if not re.search(r"@(v\d+\.\d+\.\d+|[0-9a-f]{40})$", one)] == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_says_its_permissions_and_those_that_may_write_check_out_no_pull_request(
    name: str,
) -> None:
    workflow = WORKFLOWS[name]
    assert "pull_request_target" not in EVENTS[name]
    if written(workflow["permissions"]):
        assert "pull_request" not in EVENTS[name]
        checks_out = any("checkout" in step.get("uses", "") for step in steps(workflow))
        assert not (checks_out and "workflow_run" in EVENTS[name])
    assert not any("permissions" in job for job in workflow["jobs"].values())


def test_what_runs_for_a_fork_is_handed_no_secret() -> None:
    job = WORKFLOWS["preview.yml"]["jobs"]["pr-check"]
    assert "secrets." not in yaml.safe_dump(job)
    assert "environment" not in job
    [checkout] = [step for step in job["steps"] if "checkout" in step.get("uses", "")]
    assert checkout["with"]["persist-credentials"] is False


def test_jobs_with_secrets_run_for_pull_requests_of_this_repository_alone() -> None:
    for name, workflow in WORKFLOWS.items():
        if "pull_request" not in EVENTS[name]:
            continue
        for job in workflow["jobs"].values():
            if "secrets." in yaml.safe_dump(job):
                condition = "github.event.pull_request.head.repo.full_name == github.repository"
                assert condition in cast("str", job["if"])


@pytest.mark.parametrize("name", WORKFLOWS)
def test_no_text_of_an_event_is_pasted_into_a_script(name: str) -> None:
    assert [step["run"] for step in steps(WORKFLOWS[name]) if "${{" in step.get("run", "")] == []


def test_every_stack_that_is_looked_at_is_committed() -> None:
    for name in ("preview.yml", "drift.yml"):
        for job in WORKFLOWS[name]["jobs"].values():
            for stack in job.get("strategy", {}).get("matrix", {}).get("stack", []):
                assert (CHECKOUT / f"Pulumi.{stack}.yaml").exists()
