"""One background process with a pid file, recognised by its command line and never by its name alone."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ops.errors import UserError

# Run by a Python that ends at once: the daemon belongs to init then, and leaves the caller no zombie.
_LAUNCH = """
import subprocess, sys
pid_file, log, *command = sys.argv[1:]
with open(log, "wb") as out:
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
    )
with open(pid_file, "w") as out:
    out.write(f"{child.pid}\\n")
"""


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """A process that outlives its starter.

    `mark` is a part of one of its arguments that no other process has, such as the path of its socket: a pid
    file may be older than the machine's last start, and its number may belong to somebody else by now.
    """

    program: str
    mark: str
    pid_file: Path
    log: Path

    def pid(self) -> int | None:
        """The process id, or None where it does not run (any more)."""
        try:
            pid = int(self.pid_file.read_text())
        except (OSError, ValueError):
            return None
        arguments = command_line(pid)
        ours = bool(arguments) and Path(arguments[0]).name == self.program
        return pid if ours and any(self.mark in argument for argument in arguments[1:]) else None

    def start(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        """Start it in a session of its own, with a fresh log."""
        launch = [sys.executable, "-S", "-E", "-c", _LAUNCH, str(self.pid_file), str(self.log)]
        subprocess.run([*launch, self.program, *arguments], env=dict(env), check=True)
        # For some microseconds within exec, a process has no command line.
        pid = int(self.pid_file.read_text())
        while not command_line(pid) and _lives(pid):
            time.sleep(0.001)

    def stop(self, grace_s: float) -> None:
        """Ask it to end, wait up to `grace_s` seconds, then kill it. Leaves a process that is not ours."""
        for sign, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
            pid = self.pid()
            if pid is None:
                break
            send(pid, sign)
            deadline = time.monotonic() + patience_s
            while self.pid() is not None and time.monotonic() < deadline:
                time.sleep(0.05)
        if self.pid() is not None:
            raise UserError(f"{self.program} (pid {self.pid()}) does not end, not even by SIGKILL.")
        self.pid_file.unlink(missing_ok=True)

    def log_tail(self, lines: int = 15) -> str:
        """The end of its log, indented, to stand below an error message."""
        try:
            text = self.log.read_text(errors="replace")
        except OSError:
            return "  (no log)"
        return "\n".join(f"  {line}" for line in text.splitlines()[-lines:]) or "  (the log is empty)"


def command_line(pid: int) -> list[str]:
    """A process's arguments; empty for one that is gone or a zombie."""
    return _words(pid, "cmdline")


def _words(pid: int, file: str) -> list[str]:
    try:
        raw = Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in raw.split(b"\0") if part]


def _lives(pid: int) -> bool:
    try:
        # "<pid> (<name, which may hold anything>) <state> ...": Z is a zombie, X is dead.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def processes_with(mark: str) -> list[int]:
    """Every process that has `mark` in one of its arguments, this one apart."""
    return [pid for pid in _others() if any(mark in argument for argument in command_line(pid))]


def processes_named(program: str) -> list[int]:
    """Every process that runs a program of this name, this one apart."""
    return [pid for pid in _others() if [Path(word).name for word in command_line(pid)[:1]] == [program]]


def environment(pid: int) -> list[str]:
    """The NAME=value pairs that a process was started with; empty where it may not be read."""
    return _words(pid, "environ")


def _others() -> list[int]:
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return sorted(pid for pid in pids if pid != os.getpid())


def children(pid: int) -> list[int]:
    """The direct children of a process, of all its threads."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return sorted({int(word) for task in tasks for word in (task / "children").read_text().split()})
    except OSError:
        return []


def send(pid: int, sign: signal.Signals) -> None:
    """Send a signal; a process that ended meanwhile is fine."""
    try:
        os.kill(pid, sign)
    except ProcessLookupError:
        return
