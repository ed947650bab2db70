"""Which Docker Engine the local stack uses: the one that `docker` reaches, else a private one."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from ipaddress import IPv4Network
from pathlib import Path

from ops import paths
from ops.engine import PrivateEngine, ping
from ops.errors import UserError
from ops.firewall import system_env
from ops.install_docker import WITHOUT_ENGINE, install_docker
from ops.networks import networks_in
from toolchain.progress import note, step

_DEFAULT_SOCKET = Path("/var/run/docker.sock")
_GPU = re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_PROBE_IMAGE = "tf-serving-gpu-probe"


@dataclass(frozen=True)
class Chosen:
    """The engine that the local stack lives in, until `make down`."""

    docker_host: str
    private: bool


def private_engine() -> PrivateEngine:
    """The engine that this checkout may start for the local stack; its addresses avoid the stack's own."""
    return PrivateEngine(paths.ENGINE, avoid=_declared_networks())


def decide() -> Chosen:
    """The local stack's engine, not started yet. Raises UserError where this machine can have none."""
    chosen = recorded()
    if chosen is None:
        reached = _usable()
        return Chosen(reached or private_engine().docker_host, private=reached is None)
    if not chosen.private:
        _same_engine_as_before(chosen)
    return chosen


def ensure_engine(decided: Chosen | None = None) -> Chosen:
    """The local stack's engine, answering. Raises UserError where this machine can have none."""
    chosen = decided or decide()
    if chosen.private:
        chosen = Chosen(_start_private(), private=True)
    paths.ENGINE.mkdir(parents=True, exist_ok=True)
    written = _record().with_suffix(".new")
    written.write_text(json.dumps(asdict(chosen)))
    written.replace(_record())
    return chosen


def recorded() -> Chosen | None:
    """The engine that was chosen earlier and may still hold the stack. Raises UserError for a spoilt note."""
    try:
        match json.loads(_record().read_text()):
            case {"docker_host": str(host), "private": bool(private)}:
                return Chosen(host, private)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):  # ValueError: no JSON, no UTF-8
        pass
    raise UserError(
        f"{_record()} is damaged: it says in which engine the local stack is. Remove it, and the engine is "
        "chosen anew: the one that `docker` reaches, else a private one."
    )


def forget() -> None:
    """Let the next `make up` choose again."""
    _record().unlink(missing_ok=True)


def _record() -> Path:
    return paths.ENGINE / "engine.json"


def _usable() -> str | None:
    """The engine that `docker` reaches, where it serves; None where a private one is to be started.

    One that was named and does not answer is no reason to refuse: a private engine touches nothing of
    anybody's. It is said, as the user may wait for containers in the other one.
    """
    reached, silence = reach()
    if reached is None:
        if not _may_have_private_engine():
            raise UserError(
                f"{silence or 'No Docker Engine answers'}. Start Docker or point DOCKER_HOST at one; on "
                "Debian or Ubuntu, as root, the command installs docker.io and starts a private engine. "
                f"{WITHOUT_ENGINE}"
            )
        if silence:
            note(f"{silence}; a private engine is used instead.")
        return None
    refusal = refuses_gpu(reached, _declared_gpu())
    if refusal is None:
        return reached
    why = f"The engine that docker reaches ({reached}) can't hand out the stack's simulated GPUs: {refusal}"
    if not _may_have_private_engine():
        raise UserError(
            f"{why}\nRun the command as root, for an engine of its own beside that one; or put an "
            "executable `nvidia-container-runtime-hook` that does nothing on that dockerd's PATH and "
            f"restart it. {WITHOUT_ENGINE}"
        )
    note(f"{why}\nSo a private engine is used beside it, which `make down` stops.")
    return None


def _same_engine_as_before(chosen: Chosen) -> None:
    asked = os.environ.get("DOCKER_HOST")
    if asked and asked != chosen.docker_host:
        raise UserError(
            f"The local stack is in the engine at {chosen.docker_host}, but DOCKER_HOST is {asked}. "
            "Unset it, or type `env -u DOCKER_HOST make down` first."
        )
    if _version(chosen.docker_host).returncode != 0:
        raise UserError(
            f"The local stack is in the engine at {chosen.docker_host}, which does not answer: start it "
            f"again. If it is gone for good, remove {paths.LOCAL}."
        )


def _start_private() -> str:
    engine = private_engine()
    if not engine.whole():
        install_docker()
        with step("Start a private Docker Engine", "1 s"):
            engine.start()
    return engine.docker_host


def reach() -> tuple[str | None, str]:
    """The DOCKER_HOST value of the engine that `docker` reaches, or None and why, for one the user named."""
    asked = os.environ.get("DOCKER_HOST")
    if shutil.which("docker") is None:
        why = f"DOCKER_HOST={asked} was not asked (no `docker` on PATH)" if asked else ""
        return (f"unix://{_DEFAULT_SOCKET}", "") if ping(_DEFAULT_SOCKET) else (None, why)
    host = asked or _context_host()
    done = _version(host)
    if done.returncode == 0 and done.stdout.strip():
        return host, ""
    # A socket that is there and does not answer is often one that this user may not open.
    if host == f"unix://{_DEFAULT_SOCKET}" and not _DEFAULT_SOCKET.exists():
        return None, ""
    named = f"DOCKER_HOST={host}" if asked else f"The engine of docker's context ({host})"
    return (
        None,
        f"{named} did not answer ({(done.stderr.strip().splitlines() or ['no version'])[-1].rstrip('.')})",
    )


def _context_host() -> str:
    form = "{{.Endpoints.docker.Host}}"
    done = _docker(["context", "inspect", "--format", form], timeout_s=10)
    return done.stdout.strip() or f"unix://{_DEFAULT_SOCKET}"


def _version(host: str) -> "subprocess.CompletedProcess[str]":
    return _docker(["--host", host, "version", "--format", "{{.Server.APIVersion}}"], timeout_s=20)


def refuses_gpu(host: str, gpu: str) -> str | None:
    """Why an engine would not start a container with this GPU; None where it would.

    Asked of the engine itself, with an image that holds nothing: where the GPU is handed out, all that is
    missing is the program. Both are removed again.
    """
    empty = io.BytesIO()
    tarfile.open(fileobj=empty, mode="w").close()
    prefix = ["docker", "--host", host]
    made = subprocess.run(
        [*prefix, "import", "-", _PROBE_IMAGE], input=empty.getvalue(), capture_output=True, check=False
    )
    if made.returncode != 0:
        return made.stderr.decode(errors="replace").strip()
    try:
        run = ["run", "--rm", "--network=none", f"--gpus=device={gpu}", _PROBE_IMAGE, "/none"]
        said = _docker(["--host", host, *run], timeout_s=60).stderr
    finally:
        _docker(["--host", host, "image", "rm", "--force", _PROBE_IMAGE], timeout_s=60)
    handed_out = "/none" in said and "no such file" in said
    return None if handed_out else (said.strip().splitlines() or ["no reason given"])[0]


def _docker(arguments: Sequence[str], timeout_s: float) -> "subprocess.CompletedProcess[str]":
    command = ["docker", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no answer within {timeout_s:g} s")


def _may_have_private_engine() -> bool:
    path = system_env()["PATH"]
    programs = all(shutil.which(name, path=path) for name in ("dockerd", "containerd", "ip"))
    return sys.platform == "linux" and os.geteuid() == 0 and (programs or shutil.which("apt-get") is not None)


def _local_stack_text() -> str:
    try:
        return paths.stack_file("local").read_text(encoding="utf-8")
    except OSError:
        return ""


def _declared_gpu() -> str:
    found = _GPU.search(_local_stack_text())
    return found[0] if found else "GPU-00000000-0000-4000-8000-000000000000"


def _declared_networks() -> list[IPv4Network]:
    return networks_in(_local_stack_text())
