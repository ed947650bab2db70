import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ops import labels, nodes, up
from ops.errors import UserError
from ops.hosts import Host, Result
from ops.stack import Stack
from ops.unwell import report

WELL = {"Status": "running", "Health": {"Status": "healthy"}}
STARTING = {
    "Status": "running",
    "Health": {"Status": "starting", "Log": [{"Output": "first"}, {"Output": "no version is loaded\n"}]},
}
GONE = {"Status": "exited", "ExitCode": 137, "OOMKilled": True}
NEVER_STARTED = {"Status": "created", "ExitCode": 128, "Error": "port is already allocated"}


@dataclass(frozen=True)
class FakeEngine(Host):
    """Has containers `c0`, `c1`, ... in the given states, made `age_s` ago; each one's log says 20 lines."""

    states: tuple[Mapping[str, object], ...] = ()
    age_s: int = 0
    config: Mapping[str, object] = field(default_factory=dict)

    def docker(self, *arguments: str) -> Result:
        match arguments[0]:
            case "ps":
                assert {*labels.filters("prod", "gpu-01")} <= set(arguments)
                return Result(0, "".join(f"id{i}\n" for i in range(len(self.states))), "")
            case "info":
                return Result(0, f"2026-01-01T12:00:{self.age_s:02}.123456789+01:00\n", "")
            case "inspect" if "--format" in arguments:
                return Result(0, "2026-01-01T11:00:00.123456789Z\n" * len(self.states), "")
            case "inspect":
                found = [
                    {"Name": f"/c{i}", "State": state, "Config": self.config}
                    for i, state in enumerate(self.states)
                ]
                return Result(0, json.dumps(found), "")
        assert arguments[:3] == ("logs", "--tail", "12")
        return Result(0, "to stdout\n", "".join(f"{arguments[3]} line {i}\n" for i in range(20)))


PUBLISHER = {"Labels": {labels.ROLE: labels.ENDING[0]}}


def said(
    *states: Mapping[str, object], failed: bool = True, config: Mapping[str, object] | None = None
) -> str:
    host = FakeEngine("ssh://gpu-01", states=states, config=config or {})
    return report("prod", {"gpu-01": host}, failed=failed)


def test_nothing_is_said_where_all_are_healthy_or_there_are_none() -> None:
    assert said(WELL, WELL) == ""
    assert said() == ""


def test_a_container_is_named_with_its_state_its_probe_and_the_end_of_its_log() -> None:
    shown = said(WELL, STARTING).splitlines()
    assert shown[:5] == [
        "Not well:",
        "",
        "c1 on node gpu-01: runs, but its health is: starting",
        "  its health check says: no version is loaded",
        "  the end of its log:",
    ]
    assert shown[5:-2] == [f"    c1 line {i}" for i in range(8, 20)]
    assert "`make heal STACK=" in shown[-1]


def test_why_a_container_does_not_run_is_said() -> None:
    shown = said(GONE, NEVER_STARTED)
    assert "c0 on node gpu-01: exited (exit code 137, killed for want of memory)" in shown
    assert "c1 on node gpu-01: created (exit code 128, port is already allocated)" in shown


@pytest.mark.parametrize("failed", [True, False])
def test_a_publisher_that_ended_well_is_well_and_one_that_did_not_is_shown(failed: bool) -> None:
    ended = {"Status": "exited", "ExitCode": 0, "Health": {"Status": "unhealthy"}}
    assert said(ended, failed=failed, config=PUBLISHER) == ""
    assert said({"Status": "exited", "ExitCode": 255}, failed=failed, config=PUBLISHER) == ""
    assert "c0 on node gpu-01: exited (exit code 0)" in said(ended, failed=failed)
    for code in (1, 137, 141, 143):
        gave_up = {"Status": "exited", "ExitCode": code, "Health": {"Log": [{"ExitCode": 1}]}}
        shown = said(gave_up, failed=failed, config=PUBLISHER)
        assert f"c0 on node gpu-01: exited (exit code {code})" in shown
        lingered = {
            "Status": "exited",
            "ExitCode": code,
            "Health": {"Log": [{"ExitCode": 1}, {"ExitCode": 0}]},
        }
        assert said(lingered, failed=failed, config=PUBLISHER) == ""


def test_after_an_up_that_succeeded_one_that_starts_is_no_news_but_one_that_is_gone_is() -> None:
    assert said(STARTING, failed=False) == ""
    assert said(STARTING, GONE, failed=False).startswith("Not well:\n\nc1 ")


def test_an_engine_that_does_not_answer_has_nothing_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "docker", lambda _self, *_arguments: Result(1, "", "no route to host"))
    assert report("prod", {"gpu-01": Host("ssh://gpu-01")}, failed=True) == ""


@pytest.mark.parametrize(("pulumi", "state", "code"), [(0, WELL, 0), (0, GONE, 1), (255, GONE, 255)])
def test_an_up_fails_where_a_container_is_not_well_also_where_pulumi_is_content(
    pulumi: int, state: Mapping[str, object], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, ...]] = []

    def run(_self: Stack, *arguments: str) -> int:
        ran.append(arguments)
        return pulumi

    monkeypatch.setattr(Stack, "run", run)
    host = FakeEngine("ssh://gpu-01", states=(state,))
    stack = Stack(name="prod", pulumi=Path("pulumi"), env={})
    assert up.deploy(stack, {"gpu-01": host}, ["--yes"]) == code
    assert [words[:4] for words in ran] == [("up", "--continue-on-error", "--suppress-outputs", "--yes")]


@pytest.mark.parametrize(("age_s", "named"), [(0, True), (30, False)])
def test_no_container_is_named_where_pulumi_failed_before_it_made_one(
    age_s: int, named: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Stack, "run", lambda _self, *_arguments: 255)
    host = FakeEngine("ssh://gpu-01", states=(GONE,), age_s=age_s)
    stack = Stack(name="prod", pulumi=Path("pulumi"), env={})
    assert up.deploy(stack, {"gpu-01": host}, []) == 255
    assert ("Not well:" in capsys.readouterr().out) is named


def test_the_hosts_of_a_stack_are_those_of_its_file() -> None:
    options = ("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=10")
    assert nodes.hosts_of("prod") == {"gpu-01": Host("ssh://deploy@gpu-01.example.com", options)}
    assert nodes.hosts_of("local", "unix:///run/x.sock") == {"local": Host("unix:///run/x.sock")}


def test_the_hosts_of_a_stack_without_a_file_are_a_message() -> None:
    with pytest.raises(UserError, match=r"Pulumi\.prdo\.yaml"):
        nodes.hosts_of("prdo")
