"""Brings the two local images into a Docker Engine, when they are absent there or out of date.

An image carries a hash of what it was made from as a label, so asking costs one `docker image inspect`. The
same inputs on the same host give the same image ID.

An edited simulator (or an edited recipe) gives a new image under the same name. Containers that run keep the
image that they were created from: their stack still works, and `up` sees no change, because the name of the
image did not change. They get the new image when something else replaces them, or after `make down` and
`make up`. `ensure_images` says so where it applies. The superseded image is removed from the engine unless
containers still use it.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from images import envoy, simulator
from images.archive import Image, write_archive
from images.inputs import machine
from toolchain.errors import ToolchainError
from toolchain.progress import note, step

INPUTS_LABEL = "tf-serving.inputs"


@dataclass(frozen=True)
class Recipe:
    """How one image is made, and how to tell whether it has to be."""

    name: str
    inputs: Callable[[], str]
    image: Callable[[], Image]


RECIPES = (
    Recipe(simulator.NAME, simulator.inputs, simulator.image),
    Recipe(envoy.NAME, envoy.inputs, envoy.image),
)


@dataclass(frozen=True)
class Present:
    """An image that an engine has."""

    identity: str
    inputs: str


def ensure_images(docker_host: str | None) -> None:
    """Make both images in the engine at `docker_host`, unless they are up to date there.

    None is the engine that `docker` reaches by itself. Raises ToolchainError when the engine can't be
    reached or does not take the image.
    """
    present = _present(docker_host, [recipe.name for recipe in RECIPES])
    stale = [recipe for recipe in RECIPES if _inputs_of(present.get(recipe.name)) != recipe.inputs()]
    if stale:
        _check_architecture(docker_host)
    for recipe in stale:
        image = recipe.image()  # builds or downloads what it holds: has steps of its own
        with step(f"Make image {recipe.name}", "2 to 10 s"):
            _load(docker_host, replace(image, labels={**image.labels, INPUTS_LABEL: recipe.inputs()}))
        if old := present.get(recipe.name):
            _retire(docker_host, recipe.name, old.identity)


def _inputs_of(image: Present | None) -> str | None:
    return image.inputs if image else None


def _present(docker_host: str | None, names: Sequence[str]) -> dict[str, Present]:
    template = f'{{{{json .RepoTags}}}}|{{{{.Id}}}}|{{{{index .Config.Labels "{INPUTS_LABEL}"}}}}'
    asked = _docker(docker_host, "image", "inspect", "--format", template, *names)
    if asked.returncode != 0 and "No such image" not in asked.stderr:
        raise ToolchainError(_unreachable(docker_host, asked.stderr))
    found = {}
    for line in filter(None, asked.stdout.splitlines()):  # an empty line stands for an absent image
        tags, identity, inputs = line.rsplit("|", 2)
        found.update({name: Present(identity, inputs) for name in names if f'"{name}"' in tags})
    return found


def _unreachable(docker_host: str | None, said: str) -> str:
    engine = docker_host or os.environ.get("DOCKER_HOST") or "the default Docker Engine"
    return f"{engine} can't be asked for its images. `docker` said:\n  {said.strip()}"


def _check_architecture(docker_host: str | None) -> None:
    asked = _docker(docker_host, "version", "--format", "{{.Server.Arch}}")
    if asked.returncode != 0:
        raise ToolchainError(_unreachable(docker_host, asked.stderr))
    if (theirs := asked.stdout.strip()) != machine():
        raise ToolchainError(
            f"the local images are made from this host's programs ({machine()}), and the engine at "
            f"{docker_host or 'the default endpoint'} runs on {theirs}: make them on a machine of that kind"
        )


def _load(docker_host: str | None, image: Image) -> None:
    with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
        write_archive(image, machine(), archive)
        archive.flush()
        loaded = _docker(docker_host, "load", "--quiet", "--input", archive.name)
    if loaded.returncode != 0:
        raise ToolchainError(
            f"the engine did not take {image.name}. `docker load` said:\n  {loaded.stderr.strip()}"
        )


def _retire(docker_host: str | None, name: str, old: str) -> None:
    """Remove the image that had the name before; say so where containers still run it."""
    current = _present(docker_host, [name]).get(name)
    if current and current.identity == old:
        return
    users = _docker(docker_host, "ps", "--quiet", "--filter", f"ancestor={old}").stdout.split()
    if users:
        note(
            f"{name} changed; {len(users)} running containers keep the one before until they are replaced "
            "(`make down`, then `make up`)"
        )
    else:
        _docker(docker_host, "image", "rm", old)  # fails where stopped containers use it: then it stays


def _docker(docker_host: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    endpoint = ["--host", docker_host] if docker_host else []
    try:
        return subprocess.run(
            ["docker", *endpoint, *arguments],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        raise ToolchainError("`docker` is not on PATH: apt-get install docker.io, or docker-cli") from None
