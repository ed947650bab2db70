import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ops import lock
from ops.errors import UserError
from ops.paths import ROOT
from ops.processes import run_through, together

# Handles signals as `python3 -m ops` does, around a child that counts the interrupts it gets.
PARENT = """
import os, subprocess, sys, time
from pathlib import Path
from ops.processes import handle_signals, run_through
handle_signals()
if sys.argv[3] == "slow":  # as where the machine has no time for us after the child has begun
    class Popen(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            deadline = time.monotonic() + 1
            while time.monotonic() < deadline:
                time.sleep(0.05)
    subprocess.Popen = Popen
try:
    run_through([sys.executable, "-c", sys.argv[1], sys.argv[2]], cwd=Path.cwd(), env=os.environ)
except KeyboardInterrupt:
    sys.exit(130)
"""
CHILD = """
import signal, sys, time
from pathlib import Path
folder, got = Path(sys.argv[1]), []
signal.signal(signal.SIGINT, lambda *_: got.append("INT"))
signal.signal(signal.SIGTERM, lambda *_: got.append("TERM"))
(folder / "ready").touch()
while not got:
    time.sleep(0.01)
time.sleep(0.3)  # as Pulumi does, it takes its time to write its state down; a second signal would show
(folder / "got").write_text(" ".join(got))
"""


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never appeared"
        time.sleep(0.01)


@pytest.mark.parametrize("pace", ["quick", "slow"])
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_us_alone_reaches_the_child_once_and_the_child_is_waited_for(
    tmp_path: Path, sign: signal.Signals, pace: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD, str(tmp_path), pace], cwd=ROOT, start_new_session=True
    ) as parent:
        try:
            wait_for(tmp_path / "ready")
            parent.send_signal(sign)
            assert parent.wait(timeout=20) == 130
        finally:
            if parent.poll() is None:
                os.killpg(parent.pid, signal.SIGKILL)
    assert (tmp_path / "got").read_text() == "INT"


def test_the_childs_exit_code_is_ours() -> None:
    assert run_through(["sh", "-c", "exit 7"], cwd=ROOT, env=os.environ) == 7


def test_jobs_run_side_by_side_and_all_are_waited_for_before_an_error_is_raised(tmp_path: Path) -> None:
    def fails() -> None:
        wait_for(tmp_path / "second has begun")
        raise UserError("first")

    def works() -> None:
        (tmp_path / "second has begun").touch()
        time.sleep(0.1)
        (tmp_path / "second has ended").touch()

    with pytest.raises(UserError, match="first"):
        together(fails, works)
    assert (tmp_path / "second has ended").exists()


def test_a_second_command_is_told_who_is_at_work(tmp_path: Path) -> None:
    path = tmp_path / ".local" / "lock"
    with (
        lock.alone(path, "`make up`"),
        pytest.raises(UserError, match=rf"`make up` \(process {os.getpid()}\) is at work"),
        lock.alone(path, "`make down`"),
    ):
        pass


def test_the_lock_of_a_killed_command_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    script = (
        "import sys, os, signal; from pathlib import Path; from ops import lock\n"
        "with lock.alone(Path(sys.argv[1]), 'make up'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(path)], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    with lock.alone(path, "`make up`"):
        assert path.read_text() == f"`make up` (process {os.getpid()})\n"
