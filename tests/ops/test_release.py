"""`make release`: what it refuses, what it writes down and in which order it runs `up`."""

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from components.errors import SettingsError
from components.stack_file import load_stack_file
from ops import release, release_file, setup, up
from ops.errors import UserError
from ops.hosts import Host, Result
from ops.paths import ROOT
from ops.release_answers import Answers, counted

MODEL = "half_plus_two"


@dataclass(frozen=True)
class Node(Host):
    """A machine that has folders of versions."""

    folders: str = "1\n2\n"

    def run(self, command: Sequence[str], patience_s: float = 0) -> Result:  # noqa: ARG002
        assert command[:2] == ["ls", "-1"]
        return Result(0, self.folders, "") if self.folders else Result(255, "", "no route")

    def docker(self, *arguments: str) -> Result:
        """A container on the first GPU that was started for version 2, and one on the second."""
        ran = {"local-gpu0": f"{MODEL}=2\trunning\n", "local-gpu1": "\texited\n"}
        return Result(
            0, next((ran[name] for name in ran if f"label=tf-serving.instance={name}" in arguments), ""), ""
        )


@dataclass
class World:
    """A stack file in a folder, and what would have been run."""

    file: Path
    ups: list[str] = field(default_factory=list)
    """The stack file's line of the release at each `up`."""
    fails_at: int | None = None
    preview: tuple[bool, str] = (False, "")
    node: Node = field(default_factory=lambda: Node("default"))

    def run(self, arguments: str) -> int:
        return release.release("local", arguments.split())

    def apply(self, _stack: str, arguments: Sequence[str]) -> tuple[int, None]:
        assert not arguments
        lines = [line.strip() for line in self.file.read_text().splitlines() if "release:" in line]
        self.ups.append(lines[0].partition("moved: ")[2].rstrip("}") if lines else "-")
        return (1 if len(self.ups) == self.fails_at else 0), None


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    shutil.copy(ROOT / "Pulumi.local.yaml", tmp_path)
    file = tmp_path / "Pulumi.local.yaml"
    text = file.read_text()
    known = "{name: half_plus_two, path: ./.local/models/half_plus_two}"
    assert known in text
    file.write_text(
        text.replace(known, f"{known[:-1]}, versions: {{specific: [1]}}, labels: {{stable: 1}}}} # one")
    )
    made = World(file)

    def in_environment(stack: str, *arguments: str) -> str:
        try:
            if arguments[0] == "read":
                return json.dumps(release_file.described(load_stack_file(file), stack, tmp_path))
            release_file.edit(file, arguments[1], arguments[2], json.loads(arguments[3]))
        except SettingsError as error:
            raise UserError(str(error)) from None
        return ""

    class Pulumi:
        @staticmethod
        def changes(*options: str) -> tuple[bool, str]:
            assert options == ()
            return made.preview

    monkeypatch.setattr(release_file, "_in_environment", in_environment)
    monkeypatch.setattr(setup, "check_stack_file", lambda _stack: None)
    monkeypatch.setattr(setup, "local_stack", Pulumi)
    monkeypatch.setattr(up, "apply", made.apply)
    monkeypatch.setattr(release, "_hosts", lambda _stack: {"local": made.node})
    return made


def says(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    """Somebody at a terminal, who answers like this."""
    left = iter(answers)
    monkeypatch.setattr("builtins.input", lambda _prompt: next(left))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)


def test_every_step_is_written_down_before_its_up_and_the_end_leaves_an_ordinary_file(world: World) -> None:
    before = world.file.read_text()
    assert world.run("main --to 2 --yes --pause 0") == 0
    assert world.ups == ["0", "1", "2", "3", "4", "-"]
    expected = before.replace("specific: [1]", "specific: [2]").replace("stable: 1", "stable: 2")
    expected = expected.replace("    - name: main\n", "    - name: main\n      new_versions: replace\n")
    assert world.file.read_text() == expected


def test_a_step_may_be_of_several_gpus(world: World) -> None:
    assert world.run("main --to 2 --yes --pause 0 --step 3") == 0
    assert world.ups == ["0", "3", "4", "-"]


def test_somebody_who_is_asked_goes_on_stays_and_later_moves_back(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = world.file.read_text()
    says(monkeypatch, "g", "s")
    assert world.run("main --to 2") == 0
    assert world.ups == ["0", "1", "2"]
    assert 'make release STACK=local ARGS="main --abort"' in capsys.readouterr().out
    says(monkeypatch, "a")
    assert world.run("main --to 2") == 0
    assert world.ups[3:] == ["2", "0", "-"]
    assert world.file.read_text() == before


def test_a_step_that_fails_ends_it_and_the_next_one_begins_with_that_step(world: World) -> None:
    world.fails_at = 3
    assert world.run("main --to 2 --yes --pause 0") == 1
    assert world.ups == ["0", "1", "2"]
    world.fails_at = None
    assert world.run("main --to 2 --yes --pause 0") == 0
    assert world.ups[3:] == ["2", "3", "4", "-"]


def test_an_abort_that_fails_is_repeated(world: World) -> None:
    before = world.file.read_text()
    world.fails_at = 3
    world.run("main --to 2 --yes --pause 0")
    world.fails_at = 4
    assert world.run("main --abort --yes") == 1
    assert world.run("main --abort --yes") == 0
    assert world.ups[3:] == ["0", "0", "-"]
    assert world.file.read_text() == before


def test_errors_of_the_new_version_move_it_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = world.file.read_text()
    monkeypatch.setattr(release, "answers", lambda *_: Answers(1000, 11))
    assert world.run("main --to 2 --yes --pause 0 --max-failed 2") == 0
    world.run("main --to 1 --yes --pause 0")
    world.ups.clear()
    again = world.file.read_text()
    assert world.run("main --to 2 --yes --pause 0 --max-failed 1") == 1
    assert world.ups == ["0", "1", "0", "-"]
    assert world.file.read_text() == again != before


def test_a_new_version_that_cannot_be_asked_is_moved_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "answers", lambda *_: None)
    assert world.run("main --to 2 --yes --pause 0 --max-failed 50") == 1
    assert world.ups == ["0", "1", "0", "-"]


def test_an_error_that_nobody_was_asked_about_is_one_without_yes_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "answers", lambda *_: Answers(10, 10))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert world.run("main --to 2 --pause 0 --max-failed 50") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("main --to 2 --max-failed 1", "--max-failed: is looked at in the pauses between steps"),
        ("nobody --to 2 --yes", "nobody: no such pool in stack local; there are main"),
        ("main --to 1 --yes", f"pool main serves version 1 of {MODEL} already"),
        ("main --to 2 --model bert --yes", f"--model bert: no model of pool main; accepted: {MODEL}"),
        ("main --to 3 --yes", "has no version 3"),
        ("main --yes", "no release of pool main is under way; begin one: --to VERSION"),
        ("main --abort --yes", "no release of pool main is under way in Pulumi.local.yaml"),
        ("main --to 2", "there is no terminal to ask at: add --yes"),
        ("main --to 2 --step 0 --yes", "--step 0: at least 1 GPU a step"),
        ("main --to two", "argument --to: invalid int value: 'two'"),
        ("--to 2", "the following arguments are required: pool"),
    ],
)
def test_what_cannot_be_begun_is_refused_with_the_reason(world: World, arguments: str, message: str) -> None:
    before = world.file.read_text()
    with pytest.raises(UserError, match=re.escape(message)):
        world.run(arguments)
    assert (world.ups, world.file.read_text()) == ([], before)


def test_other_changes_do_not_ride_along(world: World) -> None:
    world.preview = (True, "~ Container replaced: batching")
    with pytest.raises(
        UserError, match=r"(?s)other changes must not ride along.*Container replaced: batching"
    ):
        world.run("main --to 2 --yes")
    assert world.ups == []


def test_a_node_where_nobody_can_look_is_left_to_the_first_step(world: World) -> None:
    world.node = Node("default", folders="")
    assert world.run("main --to 9 --yes --pause 0") == 0


def test_a_pool_that_loads_the_newest_by_itself_cannot_be_released(world: World) -> None:
    world.file.write_text(world.file.read_text().replace("specific: [1]", "latest: 1"))
    with pytest.raises(UserError, match="must have one version before it gets another: set versions"):
        world.run("main --to 2 --yes")


def test_another_release_waits_for_the_one_that_is_under_way(world: World) -> None:
    world.fails_at = 2
    world.run("main --to 2 --yes --pause 0")
    with pytest.raises(UserError, match=r"(?s)to version 2 is under way, 1 of 4 instances moved.*--abort"):
        world.run("main --to 1 --yes")


def test_status_tells_what_the_file_says(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.fails_at = 2
    world.run("main --to 2 --yes --pause 0")
    capsys.readouterr()
    assert world.run("main --status") == 0
    said = capsys.readouterr().out
    assert f"a release of {MODEL} in pool main to version 2 is under way, 1 of 4 instances moved" in said
    rows = [line.split(maxsplit=3) for line in said.splitlines() if line.strip().startswith("local-gpu")]
    assert [row[2] for row in rows] == [f"{MODEL}=2", *[f"{MODEL}=1"] * 3]
    others = ["as its list of models says (exited)", "no container", "no container"]
    assert [row[3].strip() for row in rows] == [f"{MODEL}=2 (running)", *others]


def test_on_kubernetes_it_says_what_to_do_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def described(_stack: str, *_arguments: str) -> str:
        settings = load_stack_file(ROOT / "Pulumi.staging.yaml")
        return json.dumps(release_file.described(settings, "staging", ROOT))

    monkeypatch.setattr(release_file, "_in_environment", described)
    monkeypatch.setattr(setup, "check_stack_file", lambda _stack: None)
    with pytest.raises(UserError, match=r"stack staging is on Kubernetes.*traffic.canary"):
        release.release("staging", ["main", "--to", "2", "--yes"])


def test_answers_of_a_model_are_counted_by_how_they_ended() -> None:
    page = "\n".join(
        f':tensorflow:serving:request_count{{model_name="{model}",status="{status}"}} {count}'
        for model, status, count in (
            ("a", "OK", 90),
            ("a", "INTERNAL", 10),
            ("a", "NOT_FOUND", 3),
            ("b", "OK", 7),
        )
    )
    assert counted(page, "a") == Answers(103, 10)
    assert str(counted(page, "a")).endswith("failed (9.7 %)")
