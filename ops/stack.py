"""Runs the Pulumi CLI on a stack."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ops import paths, why
from ops.daemon import environment, processes_named
from ops.errors import UserError
from ops.processes import run_through
from ops.state import Backend
from review.events import read_log

# Commands that read the stack file, and so must be given the copy that has the salt.
_READS_CONFIG = frozenset(
    {"up", "update", "preview", "pre", "destroy", "down", "refresh", "config", "import"}
)
# How a preview with --expect-no-changes ends that found some; anything else is a failure.
_CHANGES = "but changes were proposed"
_PREVIEWS = frozenset({"preview", "pre"})
# After each step Pulumi writes down the whole state, in a preview only to throw it away: most of the time of
# one of a hundred nodes. An `up` needs what it writes.
PREVIEW_ENV = {"PULUMI_SKIP_CHECKPOINTS": "true"}
_WITHOUT_STACK = frozenset({"login", "logout", "whoami", "version", "plugin", "help", "org", "schema", "env"})


class PulumiInterrupted(KeyboardInterrupt):
    """The interrupt of a Pulumi run, which has written down what it did."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A stack, the CLI that works on it, its environment; `backend` only where the state is ours."""

    name: str
    pulumi: Path
    env: Mapping[str, str]
    backend: Backend | None = None

    def run(self, *arguments: str) -> int:
        """Run a command with its output on the terminal; its exit code. Raises PulumiInterrupted."""
        try:
            return run_through(self._command(arguments), cwd=paths.ROOT, env=self._env(arguments))
        except KeyboardInterrupt:
            raise PulumiInterrupted from None

    def explain(self, *arguments: str) -> int:
        """Run a preview or an update; where it fails, say why once more at the end."""
        with tempfile.TemporaryDirectory(prefix="tf-serving-events-") as folder:
            log = Path(folder) / "events.jsonl"
            own = () if "--event-log" in arguments else ("--event-log", str(log))
            code = self.run(*arguments, *own)
            said = why.summary(read_log(log)) if code != 0 else ""
        if said:
            print(f"\n{said}", file=sys.stderr, flush=True)
        return code

    def query(self, *arguments: str) -> str:
        """The output of a command; raises UserError with what it said where it fails."""
        done = self._captured(arguments)
        if done.returncode != 0:
            raise UserError(
                f"`pulumi {' '.join(arguments)}` failed:\n{_indented(done.stderr or done.stdout)}"
            )
        return done.stdout

    def changes(self, *options: str) -> tuple[bool, str]:
        """Whether a preview has something to change, and all that it said; UserError where it fails."""
        done = self._captured(("preview", "--expect-no-changes", "--color", "never", *options))
        said = f"{done.stdout}\n{done.stderr}".strip()
        if done.returncode != 0 and _CHANGES not in said:
            raise UserError(f"`pulumi preview` of stack {self.name} failed:\n{_indented(said)}")
        return done.returncode != 0, said

    def _captured(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(arguments),
            cwd=paths.ROOT,
            env=self._env(arguments),
            capture_output=True,
            text=True,
            check=False,
        )

    def outputs(self) -> dict[str, object]:
        """The stack's outputs; secret ones are masked."""
        found = json.loads(self.query("stack", "output", "--json"))
        if not isinstance(found, dict):
            raise UserError(f"Stack {self.name} has no outputs.")
        return found

    def ensure_exists(self) -> None:
        """Create the stack in a backend of ours where it is missing, and renew its copy of the stack file."""
        backend = self.backend
        if backend is None:
            return
        backend.prepare()
        if not backend.recover_salt(self.name):
            self._init(backend)
        backend.write_config(self.name)

    def free_stale_locks(self) -> None:
        """Take away the locks that a killed run left in a backend of ours, and mend a state that it cut off.

        Raises UserError where a Pulumi is at work there: of a `make preview`, or of a `make` that was killed.
        """
        if self.backend is None:
            return
        url = f"PULUMI_BACKEND_URL={self.backend.url}"
        running = [pid for pid in processes_named("pulumi") if url in environment(pid)]
        if running:
            raise UserError(
                f"Pulumi (process {running[0]}) is at work on stack {self.name}: wait until it has ended."
            )
        shutil.rmtree(self.backend.state / ".pulumi" / "locks", ignore_errors=True)
        self.backend.restore(self.name)

    def _init(self, backend: Backend) -> None:
        # `stack init` has no --config-file and writes the salt beside the project file: give it a copy.
        with tempfile.TemporaryDirectory(prefix="tf-serving-init-") as folder:
            shutil.copy(paths.ROOT / "Pulumi.yaml", folder)
            options = ["--non-interactive", "--no-select", "--secrets-provider", "passphrase"]
            command = [str(self.pulumi), "stack", "init", self.name, *options]
            done = subprocess.run(
                command, cwd=folder, env=self._env(), capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise UserError(f"`pulumi stack init {self.name}` failed:\n{_indented(done.stderr)}")
            backend.keep_salt(Path(folder) / f"Pulumi.{self.name}.yaml")

    def _command(self, arguments: Sequence[str]) -> list[str]:
        command = [str(self.pulumi), *arguments]
        if self.backend is not None and arguments and arguments[0] in _READS_CONFIG:
            command += ["--config-file", str(self.backend.config_file(self.name))]
        return [*command, "--stack", self.name] if self._is_to_be_named(tuple(arguments)) else command

    def _is_to_be_named(self, arguments: tuple[str, ...]) -> bool:
        if not arguments or arguments[0].startswith("-") or arguments[0] in _WITHOUT_STACK:
            return False
        if arguments[0] == "stack" and arguments[1:2] in (("init",), ("select",), ("rm",)):
            # With its name, `[organization/]stack`, they refuse the option.
            return not any(word.rpartition("/")[2] == self.name for word in arguments[2:])
        return arguments[:2] != ("stack", "ls")

    def _env(self, arguments: Sequence[str] = ()) -> dict[str, str]:
        env = {"PULUMI_SKIP_UPDATE_CHECK": "true", **self.env, **_no_proxy(self.env)}
        if "--event-log" in arguments:
            env["PULUMI_DEBUG_COMMANDS"] = "true"  # which has that option
        if arguments and arguments[0] in _PREVIEWS:
            env |= PREVIEW_ENV
        return self.backend.env(env) if self.backend is not None else env


def _no_proxy(env: Mapping[str, str]) -> dict[str, str]:
    """Pulumi's processes talk to each other on the loopback: no proxy may stand in between."""
    kept = [part for part in (env.get("no_proxy") or env.get("NO_PROXY") or "").split(",") if part]
    listed = ",".join(dict.fromkeys([*kept, "localhost", "127.0.0.1"]))
    return {"no_proxy": listed, "NO_PROXY": listed}


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines())
