"""What no workflow may do: run the code of strangers with a secret, or with a token that can write."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
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


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_failed_step_is_not_hidden_by_a_pipe(name: str) -> None:
    workflow = WORKFLOWS[name]
    # GitHub adds pipefail where the shell is named, and there alone.
    named = workflow.get("defaults", {}).get("run", {}).get("shell") == "bash"
    pipes = [step["run"] for step in steps(workflow) if re.search(r"[^|]\|([^|]|$)", step.get("run", ""))]
    assert named or not pipes


needs_jq = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is on GitHub's runners")

# Writes down how it was called, and answers from files that are named for its first two arguments.
GH = """#!/bin/bash
printf '%s\\n' "$*" >>calls
cp body.md sent.md 2>/dev/null
[[ $1 == api && $* == *--method* && $* != *GET* ]] && exit 0
cat "answer-$1" 2>/dev/null || exit "${GH_CODE:-0}"
"""


def run_step(folder: Path, workflow: str, step: str, answers: dict[str, list[object]], **env: str) -> int:
    """The script of a step as a runner runs it, with a `gh` that gives these answers."""
    [script] = [one["run"] for one in steps(WORKFLOWS[workflow]) if one.get("name") == step]
    (folder / "gh").write_text(GH)
    (folder / "gh").chmod(0o755)
    for asked, answer in answers.items():
        (folder / f"answer-{asked}").write_text(json.dumps(answer))
    given = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "GH_REPO": "o/r", **env}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=given, check=False, capture_output=True).returncode


WRITE = "Write one comment, or renew it"
KEEP = "Write one issue for the stack, renew it, or close it"


@needs_jq
def test_a_report_that_is_too_long_is_cut_between_characters(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "report.md").write_text("x" + "ß" * 70_000, encoding="utf-8")
    pulls: list[object] = [{"number": 7, "head": {"sha": "s"}, "user": {"login": "somebody"}, "body": ""}]
    env = {"RUN_ID": "1", "SHA": "s", "HEAD": "o:b", "MARK": "<!-- pr-check -->"}
    assert run_step(tmp_path, "comment.yml", WRITE, {"api": pulls}, **env) == 0
    sent = (tmp_path / "body.md").read_text(encoding="utf-8")
    assert sent == "<!-- pr-check -->\n\nx" + "ß" * 63_999 + "\n"
    assert "--method POST repos/o/r/issues/7/comments" in (tmp_path / "calls").read_text()


@needs_jq
def test_an_issue_is_not_made_twice_where_the_list_of_issues_cannot_be_had(tmp_path: Path) -> None:
    (tmp_path / "drift.md").write_text("Drift in stack prod.\n")
    assert run_step(tmp_path, "drift.yml", KEEP, {}, STACK="prod", GH_CODE="1") != 0
    assert "issue create" not in (tmp_path / "calls").read_text()
    assert run_step(tmp_path, "drift.yml", KEEP, {"issue": []}, STACK="prod") == 0
    assert "issue create" in (tmp_path / "calls").read_text()


@needs_jq
def test_a_report_renews_the_comment_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "report.md").write_text("Nothing changes.\n")
    mark = "<!-- pr-check -->"
    # `gh` answers both questions alike: pull requests with this head, and comments.
    others = {"id": 8, "user": {"login": "somebody"}, "body": f"{mark} mine"}
    ours = {"id": 9, "user": {"login": "github-actions[bot]"}, "body": f"{mark}\n\nbefore"}
    answers: list[object] = [{"number": 7, "head": {"sha": "s"}, **others}, {"head": {"sha": "t"}, **ours}]
    env = {"RUN_ID": "1", "SHA": "s", "HEAD": "o:b", "MARK": mark}
    assert run_step(tmp_path, "comment.yml", WRITE, {"api": answers}, **env) == 0
    calls = (tmp_path / "calls").read_text()
    assert "--method PATCH repos/o/r/issues/comments/9" in calls
    assert "--method POST" not in calls


@needs_jq
def test_an_issue_about_drift_is_renewed_and_closed_once_there_is_none(tmp_path: Path) -> None:
    there: list[object] = [
        {"number": 3, "title": "Drift in stack prod-2"},
        {"number": 4, "title": "Drift in stack prod"},
    ]
    (tmp_path / "drift.md").write_text("Drift in stack prod.\n")
    assert run_step(tmp_path, "drift.yml", KEEP, {"issue": there}, STACK="prod") == 0
    assert "issue edit 4 --body-file drift.md" in (tmp_path / "calls").read_text()
    (tmp_path / "drift.md").write_text("No drift in stack prod.\n")
    assert run_step(tmp_path, "drift.yml", KEEP, {"issue": there}, STACK="prod") == 0
    calls = (tmp_path / "calls").read_text()
    assert "issue close 4 --comment No drift in stack prod." in calls
    assert "issue create" not in calls
