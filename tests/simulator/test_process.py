"""Signals, as a process that installs no handlers meets them."""

import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.simulator.conftest import Start
from tests.simulator.server import GPU, wait_for

pytestmark = pytest.mark.simulator


def test_sigterm_ends_it_at_once_and_cuts_what_is_in_flight(start: Start, half: Path) -> None:
    server = start("--model_name=half", f"--model_base_path={half}", env={"SIM_BASE_MS": "5000"}).ready()
    outcome: list[object] = []

    def ask() -> None:
        try:
            outcome.append(server.rest("/v1/models/half:predict", {"instances": [1]}).status)
        except OSError as error:
            outcome.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    wait_for("the request", lambda: _connections(server.process.pid) >= 1)
    server.process.terminate()
    assert server.process.wait(timeout=2) in (-signal.SIGTERM, 128 + signal.SIGTERM)
    asking.join()
    assert isinstance(outcome[0], OSError)


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root, to make a PID namespace"
)
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_as_the_first_process_of_a_container_it_ignores_signals(
    binary: Path, half: Path, tmp_path: Path, sign: signal.Signals
) -> None:
    flags = ["--port=0", f"--grpc_socket_path={tmp_path / 'socket'}", f"--model_base_path={half}"]
    log = tmp_path / "log"
    with log.open("wb") as out:
        outer = subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", str(binary), *flags],
            env={"PATH": os.environ["PATH"], "NVIDIA_VISIBLE_DEVICES": GPU},
            stdout=out,
            stderr=out,
        )
    try:
        wait_for("the server", lambda: "Running gRPC" in log.read_text())
        (inner,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        os.kill(int(inner), sign)
        with pytest.raises(subprocess.TimeoutExpired):
            outer.wait(timeout=0.5)
    finally:
        outer.kill()
        outer.wait()


def _connections(pid: int) -> int:
    """Established connections of a process."""
    sockets = {str(entry.readlink()) for entry in _open_files(pid)}
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return sum(row[3] == "01" and f"socket:[{row[9]}]" in sockets for row in rows)


def _open_files(pid: int) -> list[Path]:
    return [entry for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()]
