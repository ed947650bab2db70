"""Which Pulumi commands are given the stack's name, and which need no backend of a team."""

import os
from pathlib import Path

import pytest

from ops import cli, nodes, paths, setup
from ops.errors import UserError
from ops.hosts import Host
from ops.stack import Stack

COMMANDS = [
    ("login s3://bucket", False),
    ("whoami -v", False),
    ("--help", False),
    ("stack ls", False),
    ("stack init prod --secrets-provider awskms://alias/x", False),
    ("stack init team/prod", False),
    ("stack init --secrets-provider awskms://alias/x", True),
    ("stack rm --yes", True),
    ("stack output rest_url", True),
    ("config set x prod", True),
    ("cancel", True),
]


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout on a machine without a login, whose Pulumi notes its arguments in the file handed out."""
    (tmp_path / "Pulumi.yaml").write_text("name: tf-serving\n")
    (tmp_path / "Pulumi.prod.yaml").write_text("config: {}\n")
    script = tmp_path / "pulumi"
    script.write_text(f"#!/bin/sh\necho \"$*\" >>'{tmp_path}/ran'\n")
    script.chmod(0o755)
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(setup, "ensure_tools", lambda **_options: None)
    monkeypatch.setattr(
        setup, "cli", lambda name, env, *, backend: Stack(name=name, pulumi=script, env=env, backend=backend)
    )
    for name in ("PULUMI_BACKEND_URL", "PULUMI_ACCESS_TOKEN", "PULUMI_HOME", "PULUMI_CREDENTIALS_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "ran"


@pytest.mark.parametrize(("typed", "named"), COMMANDS)
def test_a_command_gets_the_stacks_name_where_it_takes_one(
    ran: Path, monkeypatch: pytest.MonkeyPatch, typed: str, named: bool
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://bucket")
    assert cli.main(["pulumi", "--stack", "prod", f"--arguments={typed}"]) == 0
    assert ran.read_text() == f"{typed} --stack prod\n" if named else f"{typed}\n"


@pytest.mark.parametrize("typed", ["login s3://bucket", "logout", "whoami -v"])
def test_what_tells_or_chooses_the_backend_needs_none(ran: Path, typed: str) -> None:
    assert cli.main(["pulumi", "--stack", "prod", f"--arguments={typed}"]) == 0
    assert ran.read_text() == f"{typed}\n"


@pytest.mark.parametrize("typed", ["stack init prod", "stack ls", "up"])
def test_all_else_needs_the_teams_backend(ran: Path, capsys: pytest.CaptureFixture[str], typed: str) -> None:
    assert cli.main(["pulumi", "--stack", "prod", f"--arguments={typed}"]) == 1
    assert "Stack prod has no shared state backend, so nothing was changed." in capsys.readouterr().err
    assert not ran.exists()


def test_a_login_for_the_local_stack_is_refused_with_the_command_for_a_teams(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["pulumi", "--arguments=login s3://bucket"]) == 1
    assert "make pulumi STACK=<stack> ARGS='login s3://bucket'" in capsys.readouterr().err


def test_without_a_command_the_message_says_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pulumi", "--stack", "prod"]) == 1
    said = "make pulumi: type what Pulumi is to do: make pulumi STACK=prod ARGS='stack output'\n"
    assert capsys.readouterr().err == said


def test_a_backend_on_this_machine_is_said_to_be_seen_by_nobody_else(
    ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///mnt/state")
    assert cli.main(["pulumi", "--stack", "prod", "--arguments=cancel"]) == 0
    assert "file:///mnt/state (on this machine: nobody else can see or lock it)" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["up", "preview"])
def test_a_bad_stack_file_is_told_before_the_backend_and_before_pulumi(
    ran: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    def bad(_stack: str) -> dict[str, Host]:
        raise UserError("nodez: is not a setting")

    monkeypatch.setattr(paths, "LOCAL", paths.ROOT / ".local")
    monkeypatch.setattr("toolchain.python_env.ensure_venv", lambda: None)
    monkeypatch.setattr(nodes, "hosts_of", bad)
    assert cli.main([command, "--stack", "prod"]) == 1
    assert capsys.readouterr().err == f"make {command}: nodez: is not a setting\n"
    assert not ran.exists()


@pytest.mark.parametrize(("command", "skipped"), [("preview", True), ("up", False), ("refresh", False)])
def test_only_a_preview_writes_no_checkpoints(tmp_path: Path, command: str, skipped: bool) -> None:
    script = tmp_path / "pulumi"
    script.write_text('#!/bin/sh\necho "${PULUMI_SKIP_CHECKPOINTS:-written}"\n')
    script.chmod(0o755)
    stack = Stack(name="prod", pulumi=script, env={"PATH": os.defpath})
    assert stack.query(command).strip() == ("true" if skipped else "written")
