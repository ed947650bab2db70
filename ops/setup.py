"""What must be there before a stack can be worked on; each step is a cheap look when it is done already."""

import importlib.util
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from images.build import ensure_images
from images.samples import write_sample_models
from ops import docker_host, leftovers, nodes, paths
from ops.errors import UserError
from ops.processes import together
from ops.stack import Stack
from ops.state import Backend, how_to_share, local_backend, only_here, team_backend
from review import trees
from toolchain import pulumi, python_env
from toolchain.progress import note

LOCAL_STACK = "local"
# As Pulumi has it.
_STACK_NAME = re.compile(r"\w[\w.-]{0,99}", re.ASCII)


def require_stack_file(stack: str) -> None:
    """Raise UserError for a stack that has no file."""
    if _STACK_NAME.fullmatch(stack) and paths.stack_file(stack).exists():
        return
    known = sorted(file.name.split(".")[1] for file in paths.ROOT.glob("Pulumi.*.yaml"))
    here = f"stacks here: {', '.join(known)}"
    if not stack:
        raise UserError(f"STACK is empty: name a stack, or leave it out for {LOCAL_STACK}; {here}.")
    if not _STACK_NAME.fullmatch(stack):
        raise UserError(f"STACK={stack[:60]!a} is no name of a stack; {here}.")
    raise UserError(f"There is no Pulumi.{stack}.yaml; {here}.")


def plugins_of(stack: str) -> tuple[str, ...]:
    """What Pulumi needs for a stack: the Kubernetes plugin takes minutes to build, so only where it is."""
    return ("docker", "kubernetes") if is_on_kubernetes(stack) else ("docker",)


def is_on_kubernetes(stack: str) -> bool:
    """Whether its pods are on a cluster, or its manifests for one."""
    return trees.is_on_kubernetes(paths.stack_file(stack))


def check_stack_file(stack: str) -> None:
    """Raise UserError with every problem of a stack file, before anything slow is made for it."""
    require_stack_file(stack)
    python_env.ensure_venv()
    nodes.hosts_of(stack)


def local_stack() -> Stack:
    """The local stack with all it needs: tools, engine, images, models, state; made side by side."""
    require_stack_file(LOCAL_STACK)
    # Where there can be none, that is said before minutes of set-up.
    decided = docker_host.decide()
    made: dict[str, docker_host.Chosen] = {}

    def engine_and_images() -> None:
        made["engine"] = docker_host.ensure_engine(decided)
        ensure_images(made["engine"].docker_host)

    if importlib.util.find_spec("ensurepip") is None:
        # Both would install packages by apt, which takes one at a time.
        python_env.ensure_venv()
    together(ensure_tools, engine_and_images)
    write_sample_models(paths.LOCAL / "models")
    return ready_local_stack(made["engine"].docker_host)


def ready_local_stack(host: str) -> Stack:
    """The local stack in its engine, with what a killed run left behind cleared away."""
    stack = cli(LOCAL_STACK, engine_env(host), backend=local_backend())
    stack.free_stale_locks()
    stack.ensure_exists()
    leftovers.clear(stack, lambda: nodes.hosts_of(LOCAL_STACK, host))
    return stack


def local_cli() -> Stack:
    """The local stack's CLI and state, without starting an engine; the one that holds the stack is named."""
    ensure_tools()
    chosen = docker_host.recorded()
    stack = cli(LOCAL_STACK, engine_env(chosen.docker_host) if chosen else {}, backend=local_backend())
    stack.ensure_exists()
    return stack


def team_stack(stack: str, *, changes: bool) -> Stack:
    """A stack of a team, on the backend that the user set. Raises UserError where there is none of theirs."""
    require_stack_file(stack)
    backend = team_backend(stack, os.environ, paths.ROOT / "Pulumi.yaml")
    if backend is None:
        raise UserError(
            f"Stack {stack} has no shared state backend, so nothing was changed.\n{how_to_share(stack)}"
        )
    ensure_tools(stack=stack, changes_stack=stack if changes else None)
    alone = " (on this machine: nobody else can see or lock it)" if only_here(backend) else ""
    note(f"State of stack {stack}: {backend}{alone}")
    return cli(stack, {}, backend=None)


def engine_env(host: str) -> dict[str, str]:
    """The variables that lead to the local stack's engine: the shell's others would lead elsewhere."""
    # The provider takes a context before the host, and asks for TLS where the shell does.
    return {"DOCKER_HOST": host, "DOCKER_CONTEXT": "", "DOCKER_TLS_VERIFY": "", "DOCKER_CERT_PATH": ""}


def ensure_tools(*, stack: str = LOCAL_STACK, changes_stack: str | None = None) -> None:
    """The virtual environment and the Pulumi CLI with the plugins of a stack.

    `changes_stack` names a team's stack that is about to be changed: a CLI that was rebuilt here is then used
    only where TOOLCHAIN=registries asks for it.
    """
    python_env.ensure_venv()
    pulumi.ensure(plugins=plugins_of(stack), changes_stack=changes_stack)


def cli(name: str, env: Mapping[str, str], *, backend: Backend | None) -> Stack:
    """The Pulumi CLI for a stack, on a backend of ours or (None) on the team's."""
    tools = pulumi.ensure(plugins=plugins_of(name))
    # The user's `pulumi login` is looked for where it always is, also by a CLI with a home of its own.
    login = {"PULUMI_CREDENTIALS_PATH": _credentials_folder()} if "PULUMI_HOME" in tools.env else {}
    return Stack(
        name=name, pulumi=tools.pulumi, env={**os.environ, **login, **tools.env, **env}, backend=backend
    )


def preflight(stack: str, env: Mapping[str, str]) -> int:
    """Run the preflight in the virtual environment, which reading a stack file needs."""
    command = [str(paths.PYTHON), "-m", "ops.preflight", stack]
    return subprocess.run(command, cwd=paths.ROOT, env={**os.environ, **env}, check=False).returncode


def preflight_alone(stack: str) -> int:
    """`make preflight`: with the virtual environment made first, and the local stack's engine named."""
    require_stack_file(stack)
    python_env.ensure_venv()
    if stack != LOCAL_STACK:
        return preflight(stack, {})
    chosen = docker_host.recorded()
    host = chosen.docker_host if chosen else docker_host.reach()[0]
    if host is None:
        note("No Docker Engine runs for the local stack yet: `make up` starts one where it can.")
        return 0
    return preflight(stack, engine_env(host))


def pin(stack: str) -> int:
    """`make pin`: the stack's images by digest, in the virtual environment."""
    require_stack_file(stack)
    if stack == LOCAL_STACK:
        raise UserError("The local stack's images are made on this machine: there is nothing to pin.")
    python_env.ensure_venv()
    return subprocess.run([str(paths.PYTHON), "-m", "ops.pin", stack], cwd=paths.ROOT, check=False).returncode


def api_keys() -> int:
    """`make api-keys`: the file of a Secret with API keys, in the virtual environment."""
    python_env.ensure_venv()
    return subprocess.run([str(paths.PYTHON), "-m", "ops.api_keys"], cwd=paths.ROOT, check=False).returncode


def _credentials_folder() -> str:
    """Where the user's `pulumi login` is, for a CLI that has a home of its own."""
    own = os.environ.get("PULUMI_CREDENTIALS_PATH") or os.environ.get("PULUMI_HOME")
    return own or str(Path.home() / ".pulumi")
