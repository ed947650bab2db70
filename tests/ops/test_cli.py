import errno
import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from ops import cli, lock, paths, release, setup, tiers, up
from ops.errors import UserError
from ops.stack import PulumiInterrupted
from ops.tiers import Outcome, Tier
from toolchain.errors import ToolchainError


@pytest.mark.parametrize("error", [UserError("Start Docker."), ToolchainError("Start Docker.")])
def test_a_problem_is_one_message_without_a_traceback_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fails(_stack: str, _arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(up, "preview", fails)
    assert cli.main(["preview"]) == 1
    assert capsys.readouterr().err == "make preview: Start Docker.\n"


def test_lint_fails_where_a_checker_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> int:
        return -9 if "mypy" in command else 0

    monkeypatch.setattr(tiers, "_python", lambda: Path("python"))
    monkeypatch.setattr(tiers, "actionlint", lambda: Path("actionlint"))
    monkeypatch.setattr(tiers, "run_through", run)
    assert tiers.lint() == 1


def test_an_interrupt_is_one_line_and_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    def interrupted(_stack: str, _arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(up, "preview", interrupted)
    assert cli.main(["preview"]) == 130
    assert capsys.readouterr().err == "\nmake preview: interrupted.\n"


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (KeyboardInterrupt, "\nmake up: interrupted.\n"),
        (PulumiInterrupted, "\nmake up: interrupted. What was made so far is in the stack's state: "),
    ],
)
def test_only_an_interrupt_of_pulumi_itself_says_that_something_is_in_the_state(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    at: type[KeyboardInterrupt],
    said: str,
) -> None:
    def interrupted(_stack: str, _arguments: list[str]) -> int:
        raise at

    monkeypatch.setattr(paths, "LOCAL", tmp_path)
    monkeypatch.setattr(up, "up", interrupted)
    assert cli.main(["up"]) == 130
    assert capsys.readouterr().err.startswith(said)


def test_arguments_for_pulumi_come_through_as_a_shell_would_split_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    got: list[object] = []

    def note(stack: str, arguments: list[str]) -> int:
        got.extend([stack, arguments])
        return 5

    monkeypatch.setattr(up, "preview", note)
    assert cli.main(["preview", "--stack", "prod", "--arguments=--diff --target 'a b'"]) == 5
    assert got == ["prod", ["--diff", "--target", "a b"]]


def test_a_stack_without_a_file_is_refused_with_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup, "ensure_tools", lambda: pytest.fail("nothing may be set up for it"))
    assert cli.main(["preview", "--stack", "prdo"]) == 1
    assert "no Pulumi.prdo.yaml; stacks here: local, prod" in capsys.readouterr().err
    assert not paths.stack_file("prdo").exists()


# A preview that needs an engine too belongs to the tier that has one; a drill always needs one, and a
# test with a cluster is an integration test.
TOGETHER = [{"preview", "integration"}, {"integration", "drill"}, {"integration", "cluster"}]


def test_every_marker_of_the_tests_has_a_tier_and_no_test_is_in_two() -> None:
    with (paths.ROOT / "pyproject.toml").open("rb") as file:
        declared = tomllib.load(file)["tool"]["pytest"]["ini_options"]["markers"]
    markers = {line.partition(":")[0] for line in declared}
    every = (*tiers.TIERS, tiers.DRILL, tiers.CLUSTER)
    assert {tier.name for tier in every} == {"unit", *markers}
    for marked in [set(), *({name} for name in markers - {"drill", "cluster"}), *TOGETHER]:
        has = {name: name in marked for name in markers}
        selecting = [tier.name for tier in every if eval(tier.selection, {}, has)]  # noqa: S307
        assert len(selecting) == 1, marked


@pytest.mark.parametrize(
    ("names", "ran"),
    [
        ([], ["unit", "simulator", "envoy", "preview", "integration"]),
        (["drill"], ["drill"]),
        (["cluster"], ["cluster"]),
    ],
)
def test_drills_and_clusters_run_only_when_they_are_named(
    names: list[str], ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def note(tier: tiers.Tier, _arguments: list[str]) -> Outcome:
        seen.append(tier.name)
        return Outcome(tier.name, 1.0)

    monkeypatch.setattr(tiers, "_run", note)
    monkeypatch.setattr(tiers, "_python", lambda: None)
    monkeypatch.setattr(tiers, "_lint_outcome", lambda: Outcome("lint", 1.0))
    monkeypatch.setattr(tiers, "_pull_request_outcome", lambda: Outcome("pr-check", 1.0))
    assert cli.main(["test", *names]) == 0
    assert seen == ran


def test_an_unknown_tier_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["test", "intergation"]) == 1
    assert "No tier intergation; there are: unit, simulator" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("outcomes", "last"),
    [
        ([Outcome("unit", 1.5, passed=3)], "===== 3 passed in 1.50s ====="),
        (
            [Outcome("unit", 1.0, passed=3, skipped=1), Outcome("envoy", 1.0, passed=1, failed=2, ok=False)],
            "===== 2 failed, 4 passed, 1 skipped in 2.00s =====",
        ),
        ([Outcome("lint", 1.0, ok=False)], "===== a tier failed, 0 passed in 1.00s ====="),
    ],
)
def test_the_last_line_says_what_pytest_would_say(
    capsys: pytest.CaptureFixture[str], outcomes: list[Outcome], last: str
) -> None:
    tiers._summary(outcomes)
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_the_counts_of_a_tier_are_those_of_its_run(tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    report.write_text('<testsuites><testsuite tests="10" failures="2" errors="1" skipped="3"/></testsuites>')
    outcome = Outcome("unit", 1.0)
    tiers._count(report, outcome)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (4, 3, 3)


def test_a_tier_whose_needs_cannot_be_met_fails_and_the_others_still_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def needs_root() -> None:
        raise UserError("needs root")

    def passes(_command: list[str], *, cwd: Path, env: object) -> int:
        assert cwd == paths.ROOT
        return 0

    monkeypatch.setattr(tiers, "TIERS", (Tier("one", "one", needs_root), Tier("two", "two", lambda: None)))
    monkeypatch.setattr(tiers, "run_through", passes)
    monkeypatch.setattr(tiers, "_python", lambda: Path("python"))
    assert cli.main(["test", "one", "two"]) == 1
    said = capsys.readouterr()
    assert "needs root" in said.err
    assert [line.split()[-1] for line in said.out.splitlines() if line.startswith(("  one", "  two"))] == [
        "FAILED",
        "ok",
    ]


@pytest.mark.parametrize(
    ("stack", "said"),
    [
        ("", "STACK is empty: name a stack, or leave it out for local; stacks here: local, prod"),
        ("../prod", "STACK='../prod' is no name of a stack; stacks here: local, prod"),
        ("team/tf-serving/prod", "STACK='team/tf-serving/prod' is no name of a stack"),
        ("a b", "STACK='a b' is no name of a stack"),
        ("\x1b[2J", r"STACK='\x1b[2J' is no name of a stack"),
        ("x" * 5000, f"STACK='{'x' * 60}' is no name of a stack"),
    ],
)
@pytest.mark.parametrize("command", ["preview", "up", "down", "heal", "preflight", "pin"])
def test_what_is_no_name_of_a_stack_is_told_as_that(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    command: str,
    stack: str,
    said: str,
) -> None:
    monkeypatch.setattr(paths, "LOCAL", tmp_path)
    assert cli.main([command, f"--stack={stack}"]) == 1
    assert capsys.readouterr().err.startswith(f"make {command}: {said}")


def test_arguments_that_no_shell_could_split_are_told_as_that(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["preview", "--arguments=--message 'first"])
    assert "ARGS=--message 'first cannot be split into words: No closing quotation" in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EEXIST])
def test_a_checkout_that_cannot_be_written_is_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    def refuses(_path: Path, *_arguments: object, **_options: object) -> None:
        raise OSError(number, os.strerror(number), "/checkout/.local")

    monkeypatch.setattr(Path, "mkdir", refuses)
    assert cli.main(["up"]) == 1
    said = f"make up: /checkout/.local: {os.strerror(number)}. Tools, locks and the local stack's state are"
    assert capsys.readouterr().err.startswith(said)


def test_another_error_of_the_system_is_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_stack: str, _arguments: list[str]) -> int:
        raise FileNotFoundError(errno.ENOENT, "gone", "/x")

    monkeypatch.setattr(up, "preview", fails)
    with pytest.raises(FileNotFoundError):
        cli.main(["preview"])


@pytest.mark.parametrize("stack", ["pro'd", 'pro"d', "$(id)", "`id`", "-x", "pro;d"])
def test_make_hands_the_stack_on_as_it_is(stack: str) -> None:
    # Two dollars are one to make, whoever types them.
    done = make("preview", f"STACK={stack.replace('$', '$$')}")
    assert done.returncode != 0
    assert f"make preview: STACK={stack!a} is no name of a stack" in done.stderr


def test_make_works_where_the_shell_tells_python_to_leave_out_the_current_folder() -> None:
    done = make("preflight", "STACK=nowhere", PYTHONSAFEPATH="1")
    assert "make preflight: There is no Pulumi.nowhere.yaml" in done.stderr


def make(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=paths.ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_look_at_a_release_waits_for_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(paths, "LOCAL", tmp_path)
    monkeypatch.setattr(release, "release", lambda _stack, _arguments: 0)
    with lock.alone(tmp_path / "lock", "`make release`"):
        assert cli.main(["release", "--arguments=main --status"]) == 0
        assert cli.main(["release", "--arguments=main --abort"]) == 1
    assert "is at work in this checkout" in capsys.readouterr().err
