"""`make policy-audit`: what is handed to the pack, in its own environment."""

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ops import cli, paths, policy, setup
from toolchain import python_env

STATE = '{"deployment": {"resources": []}}'


@dataclass
class Ran:
    command: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)


class FakeStack:
    def query(self, *arguments: str) -> str:
        assert arguments == ("stack", "export")  # and no --show-secrets
        return STATE


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    found = Ran()

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        found.command, found.options = command, options
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(python_env, "ensure_policy_venv", lambda: Path("pack-python"))
    monkeypatch.setattr(setup, "check_stack_file", lambda _stack: None)
    monkeypatch.setattr(setup, "local_cli", FakeStack)
    monkeypatch.setattr(setup, "team_stack", lambda _stack, *, changes: FakeStack() if not changes else None)
    monkeypatch.setattr("ops.policy.environment_of", lambda _stack: "staging")
    monkeypatch.setattr("ops.audit.subprocess.run", run)
    return found


@pytest.mark.parametrize("stack", ["local", "prod"])
def test_a_stacks_state_is_judged_at_the_levels_of_its_environment(ran: Ran, stack: str) -> None:
    assert cli.main(["policy-audit", "--stack", stack, "--arguments=--json"]) == 1
    assert ran.command == ["pack-python", "-m", "audit", "--environment", "staging", "--json", "state"]
    assert ran.options["input"] == STATE
    assert ran.options["env"]["PYTHONPATH"] == str(paths.ROOT / "policies")


def test_manifests_need_no_stack(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "check_stack_file", None)
    arguments = ["policy-audit", "--manifests", "k8s", "--arguments", "--environment staging"]
    assert cli.main(arguments) == 1
    assert ran.command[3:] == ["--environment", "staging", "manifests", "k8s"]


def test_the_copy_of_the_pack_audits_with_nothing_else_of_this_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "_COPY", tmp_path / "pack")
    policy.make_copy()
    manifest: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"type": "NodePort"},
    }
    (tmp_path / "s.json").write_text(json.dumps(manifest))
    done = subprocess.run(
        [paths.PYTHON, "-m", "audit", "manifests", tmp_path / "s.json"],
        cwd=tmp_path / "pack",
        env={"PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "s.json: Service s" in done.stdout
