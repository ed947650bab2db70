"""Where a stack's state and secrets live: generated here for `local`, the team's own for every other."""

import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ops import paths
from ops.errors import UserError
from toolchain.progress import note

_SALT = re.compile(r"^encryptionsalt:.*$", re.MULTILINE)
# What `pulumi stack init` writes into a stack file: how the secrets of one state are encrypted.
_OF_A_STATE = re.compile(r"^(encryptionsalt|encryptedkey|secretsprovider):.*\n?", re.MULTILINE)
# Of these, none may reach a run that uses state of our own: each would win over it.
_FOREIGN = (
    "PULUMI_ACCESS_TOKEN",
    "PULUMI_BACKEND_URL",
    "PULUMI_CONFIG_PASSPHRASE",
    "PULUMI_CONFIG_PASSPHRASE_FILE",
    "PULUMI_STACK",
)


@dataclass(frozen=True)
class Backend:
    """State made by us in `folder`: a file backend, a passphrase, a copy of the stack file.

    The passphrase provider writes its salt into the stack file it is given: the copy, not the committed one.
    """

    folder: Path

    @property
    def state(self) -> Path:
        """The file backend's folder."""
        return self.folder / "state"

    @property
    def url(self) -> str:
        """What Pulumi calls it."""
        return f"file://{self.state}"

    @property
    def passphrase(self) -> Path:
        """The file that holds the passphrase."""
        return self.folder / "passphrase"

    @property
    def salt(self) -> Path:
        """The line that the passphrase provider wants in the stack file."""
        return self.folder / "encryptionsalt.yaml"

    def config_file(self, stack: str) -> Path:
        """The copy of the stack file that Pulumi is given."""
        return self.folder / f"Pulumi.{stack}.yaml"

    def has_stack(self, stack: str) -> bool:
        """Whether the stack exists in this backend."""
        return any(self.state.glob(f".pulumi/stacks/*/{stack}.json*"))

    def env(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment for Pulumi to use this state and nothing of the user's."""
        kept = {name: value for name, value in base.items() if name not in _FOREIGN}
        return {
            **kept,
            "PULUMI_BACKEND_URL": self.url,
            "PULUMI_CONFIG_PASSPHRASE_FILE": str(self.passphrase),
        }

    def prepare(self) -> None:
        """Make the folders and, once, the passphrase. Raises UserError where state lost its passphrase."""
        self.state.mkdir(parents=True, exist_ok=True)
        if self.passphrase.exists():
            return
        if self.has_stack("*"):
            raise UserError(
                f"{self.state} holds a stack, but its passphrase ({self.passphrase}) is gone: put the file "
                f"back, or remove {self.folder} together with the stack's containers."
            )
        descriptor = os.open(self.passphrase, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32))

    def write_config(self, stack: str) -> Path:
        """Copy the stack file, with this state's own salt in place of what another state wrote there."""
        committed = paths.stack_file(stack)
        try:
            text = committed.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise UserError(f"There is no stack {stack}: {committed.name} does not exist.") from None
        if foreign := [found[1] for found in _OF_A_STATE.finditer(text)]:
            remove = ": remove that line" if self.folder == paths.LOCAL else ""
            note(f"{committed.name} has `{foreign[0]}` of another state, which is not used here{remove}.")
            text = _OF_A_STATE.sub("", text)
        if self.salt.exists():
            text = f"{text.rstrip()}\n{self.salt.read_text()}"
        copy = self.config_file(stack)
        copy.write_text(text, encoding="utf-8")
        return copy

    def recover_salt(self, stack: str) -> bool:
        """Whether the stack exists with a known salt; one that an interrupted run left is in its state."""
        files = list(self.state.glob(f".pulumi/stacks/*/{stack}.json"))
        latest = latest_deployment(files[0]) if files else {}
        if files and not self.salt.exists():
            salt = ((latest.get("secrets_providers") or {}).get("state") or {}).get("salt")
            if salt:
                self.salt.write_text(f"encryptionsalt: {salt}\n")
            else:
                # Made, but never deployed to.
                files[0].unlink()
        return self.salt.exists() and self.has_stack(stack)

    def restore(self, stack: str) -> None:
        """Put the state of before back where a killed Pulumi left one that is cut off.

        It is older by one step at most, which is what `leftovers` and `make heal` are for. Beside each file
        the backend keeps its attributes: Pulumi reads no state whose attributes are cut off, and misses none.
        """
        for attributes in self.state.glob(f".pulumi/stacks/*/{stack}.json*.attrs"):
            if not _is_json(attributes):
                attributes.unlink()
        for checkpoint in self.state.glob(f".pulumi/stacks/*/{stack}.json"):
            before = checkpoint.with_name(f"{checkpoint.name}.bak")
            if _read(checkpoint) is None and _read(before) is not None:
                note(
                    f"{checkpoint} was cut off as Pulumi was killed: {before.name}, one step older, is used."
                )
                copy = checkpoint.with_name(f".{checkpoint.name}.restored")
                shutil.copy(before, copy)
                copy.replace(checkpoint)

    def keep_salt(self, written: Path) -> None:
        """Remember the salt that `pulumi stack init` wrote into a stack file."""
        found = _SALT.search(written.read_text(encoding="utf-8"))
        if found is None:
            raise UserError(f"`pulumi stack init` wrote no encryptionsalt into {written}.")
        self.salt.write_text(f"{found[0]}\n")

    def remove(self) -> None:
        """Delete the state with its passphrase."""
        shutil.rmtree(self.state, ignore_errors=True)
        for file in (self.passphrase, self.salt, *self.folder.glob("Pulumi.*.yaml")):
            file.unlink(missing_ok=True)


def latest_deployment(checkpoint: Path) -> dict[str, Any]:
    """What a stack's state file holds, empty before the first `up`. Raises UserError for a damaged one."""
    latest = _read(checkpoint)
    if latest is None:
        raise UserError(
            f"{checkpoint} is no state that can be read. `cp {checkpoint}.bak {checkpoint}` brings back the "
            "one before, where there is one."
        )
    return latest


def _read(checkpoint: Path) -> dict[str, Any] | None:
    try:
        match json.loads(checkpoint.read_text()):
            case {"checkpoint": {"latest": dict(latest)}}:
                return latest
            case {"checkpoint": dict()}:
                return {}
    except (OSError, ValueError):
        pass
    return None


def _is_json(file: Path) -> bool:
    try:
        json.loads(file.read_text())
    except ValueError:
        return False
    return True


def local_backend() -> Backend:
    """The local stack's state, in this checkout."""
    return Backend(paths.LOCAL)


def throw_away_backend() -> tuple[Backend, "tempfile.TemporaryDirectory[str]"]:
    """An empty backend for a plan from nothing, and the folder to clean up afterwards."""
    folder = tempfile.TemporaryDirectory(prefix="tf-serving-preview-")
    return Backend(Path(folder.name)), folder


def team_backend(stack: str, env: Mapping[str, str], project_file: Path) -> str | None:
    """The backend that the user set for a team's stack, as Pulumi itself finds it; None where there is none.

    Raises UserError for a backend or a passphrase that we generated: it exists once, on this machine.
    """
    declared = re.search(
        r"^backend:\s*\n\s+url:\s*(\S+)", project_file.read_text(encoding="utf-8"), re.MULTILINE
    )
    found = env.get("PULUMI_BACKEND_URL") or (declared[1] if declared else None) or _logged_in(env)
    if found is None and env.get("PULUMI_ACCESS_TOKEN"):
        found = "https://api.pulumi.com"
    ours = paths.LOCAL.resolve()
    for value, what in (
        (found or "", "The state backend"),
        (env.get("PULUMI_CONFIG_PASSPHRASE_FILE", ""), "The passphrase file"),
    ):
        path = _as_path(value)
        if path is not None and path.is_relative_to(ours):
            raise UserError(f"{what} {value} was generated for the local stack alone. {how_to_share(stack)}")
    return found


def how_to_share(stack: str) -> str:
    """What to type for a team's stack that has no state backend of the team's."""
    head = "It belongs to a team: its state must be where all of them see it, and locked while in use."
    init = f"stack init {stack} --secrets-provider awskms://alias/<key>"
    if shutil.which("pulumi") is not None:
        lines = [
            "export PULUMI_BACKEND_URL=s3://<bucket>     (or type `pulumi login` for Pulumi Cloud)",
            f"pulumi {init}",
        ]
    else:
        make = f"TOOLCHAIN=registries make pulumi STACK={stack}"
        lines = [f"{make} ARGS='login s3://<bucket>'", f"{make} ARGS='{init}'"]
    others = "(or azblob://, gs:// for the state; azurekeyvault://, gcpkms://, hashivault:// for the key)"
    return "\n  ".join([head, *lines, others])


def only_here(backend: str) -> bool:
    """Whether a backend is a folder of this machine."""
    return urlsplit(backend).scheme == "file"


def _logged_in(env: Mapping[str, str]) -> str | None:
    """The backend of the user's `pulumi login`."""
    home = env.get("PULUMI_CREDENTIALS_PATH") or env.get("PULUMI_HOME") or str(Path.home() / ".pulumi")
    try:
        current = json.loads((Path(home) / "credentials.json").read_text()).get("current")
    except (OSError, ValueError, AttributeError):
        return None
    return current if isinstance(current, str) and current else None


def _as_path(value: str) -> Path | None:
    parts = urlsplit(value)
    if not value or parts.scheme not in ("", "file"):
        return None
    text = unquote(f"{parts.netloc}{parts.path}")
    return Path(text.replace("~", str(Path.home()), 1) if text.startswith("~") else text).resolve()
