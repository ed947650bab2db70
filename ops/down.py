"""`make down` and `make clean`: take away what was made, and say what is left."""

import os
import shutil
from collections.abc import Sequence

from ops import cluster_commands, docker_host, paths, setup
from ops.errors import UserError
from ops.state import local_backend
from toolchain.cache import cache_root

_CACHES = (".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis")


def down(stack: str, arguments: Sequence[str]) -> int:
    """Destroy a stack; for the local one, remove its state and stop the engine that we started."""
    if stack != setup.LOCAL_STACK:
        return setup.team_stack(stack, changes=True).run("destroy", *arguments)
    if local_backend().has_stack(stack):
        setup.require_stack_file(stack)
        code = _destroy_local(arguments)
        if code != 0:
            return code
        # Pulumi has just advised to type that.
        print("`pulumi stack rm local` is done as well: the local stack's state and passphrase are removed.")
    else:
        print("The local stack is not deployed from this checkout.")
    _stop_engine()
    print(f"Left for the next `make up`: .local and .venv (`make clean` removes them), and {cache_root()}.")
    return 0


def _destroy_local(arguments: Sequence[str]) -> int:
    chosen = docker_host.ensure_engine()
    setup.ensure_tools()
    local = setup.ready_local_stack(chosen.docker_host)
    code = local.run("destroy", "--yes", "--skip-preview", *arguments)
    if code == 0:
        # Without the flag it would delete the committed stack file as well.
        local.query("stack", "rm", "--yes", "--preserve-config")
        local_backend().remove()
    return code


def _stop_engine() -> None:
    chosen = docker_host.recorded()
    engine = docker_host.private_engine()
    if engine.dockerd.pid() is not None:
        engine.stop()
        print(f"The private Docker Engine is stopped; its images stay in {engine.folder}.")
    elif chosen is not None and not chosen.private:
        print(
            f"The Docker Engine at {chosen.docker_host} is yours and goes on; two images of ours stay in it."
        )
    docker_host.forget()


def clean() -> int:
    """Remove what set-up made in this checkout. Raises UserError while the local stack is deployed."""
    if local_backend().has_stack(setup.LOCAL_STACK):
        raise UserError("The local stack is still deployed: type `make down` first.")
    engine = docker_host.private_engine()
    if engine.folder.exists() and os.geteuid() == 0:
        engine.remove()
    cluster_commands.cluster().remove()
    for folder in (
        paths.LOCAL,
        paths.ROOT / ".venv",
        paths.ROOT / "policies" / ".venv",
        *(paths.ROOT / name for name in _CACHES),
    ):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in paths.ROOT.glob("*/**/__pycache__"):
        shutil.rmtree(folder, ignore_errors=True)
    print(f"Left: the shared cache in {cache_root()}.")
    return 0
