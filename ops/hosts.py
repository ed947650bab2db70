"""Runs commands where a node's Docker Engine is: here, or over ssh."""

import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Result:
    """Exit code and output of a command; 255 where ssh itself failed, 124 where nothing came in time."""

    code: int
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        """The last line of what it said, for an error message."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1].strip() if lines else f"exit code {self.code}"


@dataclass(frozen=True)
class Host:
    """A node's machine. `endpoint`, `ssh_options` and `cert_path` are as in a stack file."""

    endpoint: str
    ssh_options: tuple[str, ...] = ()
    cert_path: str | None = None

    @property
    def remote(self) -> bool:
        """Whether it is, or may be, another machine than this one."""
        return self.endpoint.startswith(("ssh://", "tcp://"))

    @property
    def runs_commands(self) -> bool:
        """Whether other commands than docker's can be run there: over tcp:// only the engine answers."""
        return not self.endpoint.startswith("tcp://")

    def run(self, command: Sequence[str], patience_s: float = _PATIENCE_S) -> Result:
        """Run a command there; one over tcp:// fails."""
        if not self.runs_commands:
            return Result(127, "", f"{command[0]}: cannot be run over {self.endpoint}")
        return _run([*self._ssh(), shlex.join(command)] if self.remote else command, patience_s)

    def docker(self, *arguments: str) -> Result:
        """Run a docker command against the node's engine."""
        if self.endpoint.startswith("ssh://"):
            # With the provider's own ssh options; docker's -H ssh:// takes none.
            return self.run(["docker", *arguments])
        chosen = [] if self.endpoint == "default" else ["--host", self.endpoint]
        return _run(["docker", *chosen, *self._tls(), *arguments], _PATIENCE_S)

    def _tls(self) -> list[str]:
        if self.cert_path is None:
            return []
        folder = Path(self.cert_path).expanduser()
        files = {"tlscacert": "ca.pem", "tlscert": "cert.pem", "tlskey": "key.pem"}
        return ["--tlsverify", *(f"--{option}={folder / file}" for option, file in files.items())]

    def _ssh(self) -> list[str]:
        parts = urlsplit(self.endpoint)
        port = ["-p", str(parts.port)] if parts.port else []
        user = f"{parts.username}@" if parts.username else ""
        # Nobody may be asked for a password here; the user's own options come first and so win.
        options = [*self.ssh_options, "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
        return ["ssh", *options, *port, "--", f"{user}{parts.hostname}"]


def _run(command: Sequence[str], patience_s: float) -> Result:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=patience_s,
            stdin=subprocess.DEVNULL,
            env=os.environ,
        )
    except FileNotFoundError:
        return Result(127, "", f"{command[0]}: not found on this machine")
    except subprocess.TimeoutExpired:
        return Result(124, "", f"no answer within {patience_s:g} s")
    return Result(done.returncode, done.stdout, done.stderr)
