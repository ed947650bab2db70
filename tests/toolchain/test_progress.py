"""What a long step shows while it runs."""

import io
import sys
import threading

import pytest

from toolchain import progress
from toolchain.progress import duration, step


def test_a_step_says_what_it_does_and_how_long_it_took_and_leaves_standard_output_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with step("Build it", "2 min"):
        pass
    shown = capsys.readouterr()
    assert shown.out == ""
    first, last = shown.err.splitlines()
    assert first == "Build it (usually 2 min) ..."
    assert last.startswith("Build it: done in ")


def test_a_failed_step_does_not_claim_to_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError), step("Build it", "2 min"):
        raise RuntimeError
    assert capsys.readouterr().err.splitlines()[-1].startswith("Build it: failed after ")


def test_a_long_step_shows_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = threading.Event()
    written: list[str] = []

    def write(text: str) -> None:
        written.append(text)
        if "still at it" in text:
            alive.set()

    monkeypatch.setattr(progress, "LOG_INTERVAL_S", 0.01)
    monkeypatch.setattr(progress, "_write", write)
    with step("Build it", "2 min"):
        assert alive.wait(10), written


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_steps_side_by_side_share_a_line_that_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "50")
    with step("Build the first thing", "2 min"), step("Build the second thing", "2 min"):
        line = progress._status_line()
    assert line.startswith("Build the first thing: 0.0 s; Build the second")
    assert len(line) == 49


def test_a_line_of_news_replaces_the_heartbeat_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress.note("news")
    assert terminal.getvalue() == f"{progress.CLEAR_LINE}news\n"


@pytest.mark.parametrize(("seconds", "shown"), [(0.44, "0.4 s"), (12.2, "12 s"), (363, "6 min 3 s")])
def test_a_duration_reads_as_a_person_says_it(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown
