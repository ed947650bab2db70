"""Which engine is chosen, with a `docker` of ours on PATH that refuses what it does not expect."""

import json
import os
import stat
import subprocess
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from ops import docker_host, paths, setup
from ops.docker_host import Chosen
from ops.errors import UserError

GPU = "GPU-00000000-0000-4000-8000-000000000000"
STACK = f"config:\n  tf-serving:nodes:\n    - subnet: 172.29.80.0/24\n      gpus: [{{uuid: {GPU}}}]\n"

# $ENGINE says what kind of engine answers at unix:///engine: none, without GPUs, with the stub hook.
DOCKER = f"""#!/bin/sh
echo "$*" >>"$CALLS"
case "$*" in
    "context inspect --format {{{{.Endpoints.docker.Host}}}}") echo unix:///engine ;;
    "--host unix:///engine version --format {{{{.Server.APIVersion}}}}")
        [ "$ENGINE" != none ] || {{ echo "Cannot connect" >&2; exit 1; }}
        echo 1.43 ;;
    "--host unix:///engine import - tf-serving-gpu-probe") [ "$(wc -c)" -ge 1024 ] || exit 1 ;;
    "--host unix:///engine run --rm --network=none --gpus=device={GPU} tf-serving-gpu-probe /none")
        if [ "$ENGINE" = stub ]; then
            echo 'exec: "/none": stat /none: no such file or directory: unknown' >&2
            exit 127
        fi
        echo 'could not select device driver "" with capabilities: [[gpu]].' >&2
        exit 125 ;;
    "--host unix:///engine image rm --force tf-serving-gpu-probe") ;;
    *) echo "unforeseen: $*" >&2; exit 99 ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "Pulumi.local.yaml").write_text(STACK)
    for name, value in (("ROOT", tmp_path), ("LOCAL", tmp_path / ".local"), ("ENGINE", tmp_path / "docker")):
        monkeypatch.setattr(paths, name, value)
    script = tmp_path / "bin" / "docker"
    script.parent.mkdir()
    script.write_text(DOCKER)
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(docker_host, "_start_private", lambda: "unix:///private")
    monkeypatch.setattr(docker_host, "_may_have_private_engine", lambda: True)
    return tmp_path


def test_the_engine_that_docker_reaches_is_used_where_it_hands_out_the_stacks_gpus(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE", "stub")
    assert docker_host.ensure_engine() == Chosen("unix:///engine", private=False)
    # What was brought in to ask is taken away again.
    assert (checkout / "calls").read_text().splitlines()[-1].endswith("image rm --force tf-serving-gpu-probe")


def test_an_engine_without_gpus_is_left_alone_and_a_private_one_started_beside_it(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENGINE", "plain")
    assert docker_host.ensure_engine() == Chosen("unix:///private", private=True)
    assert "could not select device driver" in capsys.readouterr().err


def test_without_any_engine_a_private_one_is_started(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE", "none")
    assert docker_host.ensure_engine().private


def test_an_engine_that_was_named_and_does_not_answer_is_told_beside_the_private_one(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENGINE", "none")
    assert docker_host.ensure_engine().private
    context = "The engine of docker's context (unix:///engine) did not answer (Cannot connect)"
    assert capsys.readouterr().err == f"{context}; a private engine is used instead.\n"
    docker_host.forget()
    monkeypatch.setenv("DOCKER_HOST", "unix:///engine")
    docker_host.ensure_engine()
    assert capsys.readouterr().err.startswith("DOCKER_HOST=unix:///engine did not answer (Cannot connect); ")


def test_where_there_can_be_no_engine_that_is_said_before_anything_is_set_up(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for slow in ("ensure_tools", "together", "ensure_images"):
        monkeypatch.setattr(setup, slow, lambda *_: pytest.fail("set up all the same"))
    monkeypatch.setenv("ENGINE", "none")
    monkeypatch.setattr(docker_host, "_may_have_private_engine", lambda: False)
    with pytest.raises(UserError, match=r"did not answer \(Cannot connect\)\. Start Docker"):
        setup.local_stack()


@pytest.mark.parametrize(("engine", "advice"), [("none", "Start Docker"), ("plain", "nvidia-container")])
def test_where_no_private_engine_can_be_had_the_message_says_what_works_without(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, engine: str, advice: str
) -> None:
    monkeypatch.setenv("ENGINE", engine)
    monkeypatch.setattr(docker_host, "_may_have_private_engine", lambda: False)
    with pytest.raises(UserError, match=rf"(?s){advice}.*make preview STACK=prod"):
        docker_host.ensure_engine()


def test_the_choice_holds_until_it_is_forgotten(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE", "none")
    first = docker_host.ensure_engine()
    monkeypatch.setenv("ENGINE", "stub")
    assert docker_host.ensure_engine() == first
    docker_host.forget()
    assert docker_host.ensure_engine() == Chosen("unix:///engine", private=False)


def test_a_stack_in_an_engine_that_went_away_is_not_put_into_another(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE", "stub")
    docker_host.ensure_engine()
    monkeypatch.setenv("ENGINE", "none")
    with pytest.raises(UserError, match="unix:///engine, which does not answer: start it again"):
        docker_host.ensure_engine()


def test_another_docker_host_than_the_stacks_is_refused(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE", "stub")
    docker_host.ensure_engine()
    monkeypatch.setenv("DOCKER_HOST", "ssh://elsewhere")
    with pytest.raises(UserError, match=r"unix:///engine, but DOCKER_HOST is ssh://elsewhere"):
        docker_host.ensure_engine()


def test_without_a_record_nothing_was_chosen(checkout: Path) -> None:
    assert docker_host.recorded() is None


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"\xff", b'{"docker_host": "x"}', b'{"docker_host": 3, "private": true}']
)
def test_a_spoilt_record_is_told_with_what_to_do(checkout: Path, text: bytes) -> None:
    record = checkout / "docker" / "engine.json"
    record.parent.mkdir()
    record.write_bytes(text)
    with pytest.raises(
        UserError, match=r"engine\.json is damaged: .* Remove it, and the engine is chosen anew"
    ):
        docker_host.recorded()


def test_the_private_engine_stays_clear_of_the_subnets_that_the_stack_declares(checkout: Path) -> None:
    assert docker_host._declared_networks() == [IPv4Network("172.29.80.0/24")]


def test_the_record_is_readable_by_people(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE", "none")
    docker_host.ensure_engine()
    record = json.loads((checkout / "docker" / "engine.json").read_text())
    assert record == {"docker_host": "unix:///private", "private": True}


def test_the_fake_refuses_what_it_does_not_expect(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE", "stub")
    assert subprocess.run(["docker", "rm", "x"], check=False, capture_output=True).returncode == 99
