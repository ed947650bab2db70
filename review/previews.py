"""The real Pulumi CLI on one stack of a tree, with a state of its own and no way to any host."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.errors import SettingsError
from components.stack_file import load_stack_file
from review.events import Event, Value, deployment, errors, read_log
from review.trees import ReviewError, StackFile, Tree
from toolchain.tools import Toolchain

_PATIENCE_S = 600
# Of a team's own state, which is not used here.
_OF_A_STATE = re.compile(
    r"^(encryptionsalt|encryptedkey|secretsprovider):.*\n?|^  \S+:[ ]*\n    secure: .*\n?", re.MULTILINE
)
_KEPT = re.compile(
    r"PATH|HOME|TMPDIR|LANG|LC_.*|TF_SERVING_.*|XDG_CACHE_HOME|(https?|no)_proxy|PIP_.*", re.IGNORECASE
)


# In the place of a certificate, a key or a password: the same in both trees.
_STAND_IN = "\n-----BEGIN STAND-IN-----"


@dataclass(frozen=True)
class Preview:
    """How a preview ended, what it told (`events`), what `--json` printed, and the plan that it saved."""

    code: int
    events: Sequence[Event]
    document: Mapping[str, Value]
    plan: Mapping[str, Value]
    said: str

    @property
    def trouble(self) -> str:
        """Why it failed, for people."""
        return "\n".join(errors(self.events)) or self.said


class Bench:
    """One stack's folder: a file backend, a passphrase that guards nothing, a copy of the stack file."""

    def __init__(self, folder: Path, toolchain: Toolchain, stack: str) -> None:
        self._folder = folder
        self._pulumi = str(toolchain.pulumi)
        self._stack = stack
        (folder / "state").mkdir(parents=True)
        self._env = {
            **{name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)},
            **toolchain.env,
            "PULUMI_BACKEND_URL": f"file://{folder}/state",
            "PULUMI_CONFIG_PASSPHRASE": "none",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DEBUG_COMMANDS": "true",  # for --event-log
            "PULUMI_EXPERIMENTAL": "true",  # for --save-plan
            "DOCKER_HOST": "unix:///nonexistent/docker.sock",
        }
        self._runs = 0

    def preview(self, tree: Tree, file: StackFile, *options: str) -> Preview:
        """`pulumi preview` of a tree's stack against what the state holds."""
        self._runs += 1
        config, log, plan = (self._folder / f"{self._runs}.{kind}" for kind in ("yaml", "jsonl", "plan"))
        self._configure(tree, file, config)
        done = self._run(
            tree.folder,
            "preview",
            "--json",
            "--event-log",
            str(log),
            "--save-plan",
            str(plan),
            "--show-secrets",  # in the plan: they are stand-ins
            "--stack",
            self._stack,
            "--config-file",
            str(config),
            *options,
        )
        try:
            document = json.loads(done.stdout)
        except ValueError:
            document = {}
        return Preview(
            done.returncode,
            read_log(log),
            document,
            json.loads(plan.read_text()) if plan.exists() else {},
            done.stderr.strip(),
        )

    def pretend(self, preview: Preview, rename: tuple[str, str]) -> None:
        """Make the state what it would be had all of a preview from nothing been deployed.

        `rename` is the folder that its paths begin with, and the one that they begin with in the other tree.
        """
        text = json.dumps(deployment(preview.document, preview.events, preview.plan)).replace(*rename)
        state = self._folder / "deployment.json"
        state.write_text(text)
        self._must("stack", "import", "--stack", self._stack, "--file", str(state))

    def _configure(self, tree: Tree, file: StackFile, config: Path) -> None:
        """Write the stack's file as this state can read it, with stand-ins for its secrets."""
        salt = self._folder / f"Pulumi.{self._stack}.yaml"
        if not salt.exists():
            shutil.copy(tree.folder / "Pulumi.yaml", self._folder)
            self._must("stack", "init", self._stack, "--no-select", "--secrets-provider", "passphrase")
        text = _OF_A_STATE.sub("", (tree.folder / file.path).read_text(encoding="utf-8"))
        config.write_text(f"{text.rstrip()}\n{salt.read_text()}")
        for secret in _secrets(tree.folder / file.path):
            options = ["--stack", self._stack, "--config-file", str(config), "--secret"]
            self._must("config", "set", *options, secret, _STAND_IN)

    def _must(self, *arguments: str) -> None:
        done = self._run(self._folder, *arguments)
        if done.returncode != 0:
            raise ReviewError(f"pulumi {' '.join(arguments[:2])} failed: {done.stderr.strip()}")

    def _run(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [self._pulumi, *arguments, "--non-interactive", "--color", "never"],
                cwd=folder,
                env=self._env,
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ReviewError(f"pulumi {arguments[0]} was not done after {_PATIENCE_S} s") from None


def _secrets(stack_file: Path) -> Sequence[str]:
    """The names of the secrets that a stack needs; none where its file is not even right."""
    try:
        return list(load_stack_file(stack_file).front_end.secrets.values())
    except SettingsError:
        return []
