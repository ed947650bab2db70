"""In which order drills are played, and on what."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from drills import __main__ as playing
from drills import report
from drills.plays import Play
from drills.stage import Traffic


class FakeStage:
    """Counts how often it is brought back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.resets = 0
        self.breaks = False
        self.open = True

    def reset(self) -> None:
        assert not self.breaks
        self.resets += 1


class Ground:
    """What was played on which stage, and the rows that were kept."""

    def __init__(self) -> None:
        self.stages: list[FakeStage] = []
        self.played: list[tuple[int, str]] = []
        self.rows: dict[int, str] = {}

    @contextmanager
    def stage(self, folder: Path, _toolchain: object) -> Iterator[FakeStage]:
        made = FakeStage(folder.name)
        self.stages.append(made)
        yield made
        made.open = False
        if made.breaks:
            raise OSError("the engine is gone")

    def play(self, number: int, then: Callable[[FakeStage], None] = lambda _: None) -> Play:
        def run(stage: FakeStage) -> Traffic:
            self.played.append((number, stage.name))
            then(stage)
            return Traffic(requests={"rest": []})

        return Play(number=number, title=f"drill {number}", holds="it holds", run=run)  # type: ignore[arg-type]

    def keep(self, rows: Mapping[int, str], _foot: str) -> None:
        self.rows = dict(rows)


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> Ground:
    made = Ground()
    monkeypatch.setattr(playing, "stage", made.stage)
    monkeypatch.setattr(playing, "ensure", lambda **_: None)
    monkeypatch.setattr(report, "keep", made.keep)
    return made


def _fails(_stage: FakeStage) -> None:
    raise OSError("the engine is gone")


def _leaves_it_broken(stage: FakeStage) -> None:
    stage.breaks = True


def test_drills_that_hold_share_a_stage_that_is_brought_back_in_between(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playing, "PLAYS", [ground.play(number) for number in (3, 1, 2)])
    assert playing.main([]) == 0
    assert ground.played == [(3, "stage1"), (1, "stage1"), (2, "stage1")]
    assert [stage.resets for stage in ground.stages] == [2]
    assert not any(stage.open for stage in ground.stages)


def test_a_drill_that_fails_is_said_and_the_next_has_a_stage_of_its_own(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(playing, "PLAYS", [ground.play(1, _fails), ground.play(2)])
    assert playing.main([]) == 1
    assert ground.played == [(1, "stage1"), (2, "stage2")]
    assert not any(stage.open for stage in ground.stages)
    assert "**did not hold**: it holds" in ground.rows[1]
    assert "**did not hold**" not in ground.rows[2]
    assert "Failed: 1\n" in capsys.readouterr().err


def test_a_stage_that_cannot_be_brought_back_or_taken_away_is_replaced(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playing, "PLAYS", [ground.play(1, _leaves_it_broken), ground.play(2)])
    assert playing.main([]) == 0
    assert ground.played == [(1, "stage1"), (2, "stage2")]


def test_drills_are_chosen_by_number_and_an_unknown_one_is_refused(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(playing, "PLAYS", [ground.play(number) for number in (1, 2, 10)])
    assert playing.main(["10", "1"]) == 0
    assert [number for number, _ in ground.played] == [1, 10]
    assert playing.main(["4"]) == 2
    assert capsys.readouterr().err == "no such drill: 4; there are 1, 2, 10\n"


def test_every_drill_has_a_number_of_its_own_and_what_takes_the_stack_away_comes_last() -> None:
    numbers = [play.number for play in playing.PLAYS]
    assert sorted(numbers) == list(range(1, 24))
    assert numbers[-1] == 18
