"""What is said once more at the end of a run that failed."""

import json
from pathlib import Path

import pytest

from ops import why
from ops.stack import Stack
from review.events import Event, read_log


def refused(resource: str, what: str, level: str = "mandatory") -> Event:
    return {
        "policyEvent": {
            "enforcementLevel": level,
            "policyName": "batching",
            "resourceUrn": f"urn:pulumi:prod::tf-serving::docker:index/container:Container::{resource}",
            "message": f"Requests are computed on in batches\n{what}\n  Fix: 1000 to 10000",
        }
    }


def failed(text: str, severity: str = "error") -> Event:
    return {"diagnosticEvent": {"severity": severity, "message": text}}


def test_a_violation_is_told_with_its_resource_its_value_and_its_fix() -> None:
    events = [refused("gpu0", "batch_timeout_micros: 0: never waits"), refused("gpu0", "odd", "advisory")]
    assert why.summary([*events, failed("preview failed")]) == (
        "Why it failed:\n"
        "  - policy batching, gpu0: batch_timeout_micros: 0: never waits\n"
        "    Fix: 1000 to 10000"
    )


def test_an_error_is_told_once_and_a_long_one_by_its_beginning() -> None:
    long = "\n".join(["the engine said no", *(f"line {number}" for number in range(20))])
    said = why.summary([failed(long), failed(long), failed("careful", "warning")])
    assert said.splitlines()[:3] == ["Why it failed:", "  - the engine said no", "    line 0"]
    assert said.splitlines()[-1] == "    and 12 more lines above"
    assert said.count("the engine said no") == 1
    assert "careful" not in said


def test_many_findings_are_counted() -> None:
    said = why.summary(
        [*(refused(f"gpu{gpu}", "no") for gpu in range(20)), *(failed(f"no {n}") for n in range(14))]
    )
    assert "  - and 8 more violations of policies" in said
    assert said.endswith("  - and 2 more errors above")


def test_a_run_that_told_nothing_has_no_summary(tmp_path: Path) -> None:
    assert why.summary(read_log(tmp_path / "none.jsonl")) == ""


def test_of_a_run_that_was_killed_all_but_the_line_that_was_cut_off_is_told(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    log.write_text(f'{json.dumps(failed("no room"))}\n{{"diagnosticEvent": {{"seve')
    assert why.summary(read_log(log)) == "Why it failed:\n  - no room"


@pytest.mark.parametrize(("code", "tells"), [(1, True), (0, False)])
def test_the_end_of_a_run_says_why_it_failed_and_nothing_where_it_did_not(
    code: int, tells: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_stack: Stack, *arguments: str) -> int:
        assert arguments[:2] == ("preview", "--diff")
        Path(arguments[arguments.index("--event-log") + 1]).write_text(json.dumps(failed("no")) + "\n")
        return code

    monkeypatch.setattr(Stack, "run", run)
    stack = Stack(name="prod", pulumi=Path("pulumi"), env={})
    assert stack.explain("preview", "--diff") == code
    assert ("Why it failed:\n  - no" in capsys.readouterr().err) is tells


def test_a_log_that_the_user_asked_for_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []

    def run(_stack: Stack, *arguments: str) -> int:
        ran.append(arguments)
        return 1

    monkeypatch.setattr(Stack, "run", run)
    stack = Stack(name="prod", pulumi=Path("pulumi"), env={})
    assert stack.explain("up", "--event-log", "mine.jsonl") == 1
    assert ran == [("up", "--event-log", "mine.jsonl")]
