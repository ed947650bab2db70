import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.daemon import Daemon, command_line


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    # `tail -f` of a file of our own: it runs until it is told to end.
    (tmp_path / "marked").touch()
    made = Daemon(
        program="tail",
        mark=str(tmp_path / "marked"),
        pid_file=tmp_path / "tail.pid",
        log=tmp_path / "tail.log",
    )
    yield made
    made.stop(grace_s=5)


def start(daemon: Daemon) -> int:
    daemon.start(["-f", daemon.mark], dict(os.environ))
    pid = daemon.pid()
    assert pid is not None
    return pid


def test_a_started_daemon_runs_in_a_session_of_its_own(daemon: Daemon) -> None:
    assert os.getsid(start(daemon)) != os.getsid(0)


def test_a_stopped_daemon_is_gone_and_so_is_its_pid_file(daemon: Daemon) -> None:
    pid = start(daemon)
    daemon.stop(grace_s=5)
    assert command_line(pid) == []
    assert not daemon.pid_file.exists()


def test_a_killed_daemon_does_not_count_as_running(daemon: Daemon) -> None:
    os.kill(start(daemon), signal.SIGKILL)
    daemon.stop(grace_s=5)
    assert daemon.pid() is None


def test_a_pid_file_that_names_another_process_stops_nothing(daemon: Daemon) -> None:
    daemon.pid_file.write_text(f"{os.getpid()}\n")
    assert daemon.pid() is None
    daemon.stop(grace_s=5)  # would end the test run if it trusted the number


def test_the_same_program_with_another_mark_is_not_ours(daemon: Daemon, tmp_path: Path) -> None:
    pid = start(daemon)
    stranger = Daemon(
        program="tail",
        mark=str(tmp_path / "other"),
        pid_file=tmp_path / "other.pid",
        log=tmp_path / "other.log",
    )
    stranger.pid_file.write_text(f"{pid}\n")
    stranger.stop(grace_s=5)
    assert daemon.pid() == pid


def test_another_program_that_names_the_same_mark_is_not_ours(daemon: Daemon) -> None:
    # As `docker --host unix:///...` names the socket of a dockerd.
    other = Daemon(program="cat", mark=daemon.mark, pid_file=daemon.pid_file, log=daemon.log)
    start(daemon)
    assert other.pid() is None


@pytest.mark.parametrize("text", ["", "no number", "999999999"])
def test_a_spoilt_pid_file_means_not_running(daemon: Daemon, text: str) -> None:
    daemon.pid_file.write_text(text)
    assert daemon.pid() is None


def test_the_log_of_a_program_that_cannot_start_says_why(daemon: Daemon) -> None:
    daemon.start(["--no-such-option", daemon.mark], dict(os.environ))
    daemon.stop(grace_s=5)
    assert "no-such-option" in daemon.log_tail()
