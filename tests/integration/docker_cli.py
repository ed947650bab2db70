"""Looks at an engine with the `docker` command."""

import json
import subprocess
from collections.abc import Mapping
from typing import cast

Inspection = dict[str, dict[str, object]]


class DockerCli:
    """The `docker` command on one engine."""

    def __init__(self, docker_host: str) -> None:
        self.docker_host = docker_host

    def run(self, *arguments: str) -> str:
        """The output of a command that must succeed."""
        done = subprocess.run(
            ["docker", "--host", self.docker_host, *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise AssertionError(f"docker {' '.join(arguments)} failed: {done.stderr}")
        return done.stdout.strip()

    def names(self, kind: str) -> set[str]:
        """Names of all containers, networks or volumes (`kind` as in `docker <kind> ls`)."""
        options = ["--all"] if kind == "container" else []
        template = "{{.Names}}" if kind == "container" else "{{.Name}}"
        return set(self.run(kind, "ls", *options, "--format", template).split())

    def inspect(self, container: str) -> Inspection:
        """What the engine says of a container."""
        return cast("Inspection", json.loads(self.run("inspect", container))[0])

    def ids(self) -> dict[str, str]:
        """Every container's id by its name."""
        lines = self.run(
            "container", "ls", "--all", "--no-trunc", "--format", "{{.Names}} {{.ID}}"
        ).splitlines()
        return dict(line.split() for line in lines)


def addresses(inspection: Inspection) -> dict[str, str]:
    """A container's address on each of its networks."""
    networks = cast("Mapping[str, Mapping[str, str]]", inspection["NetworkSettings"]["Networks"])
    return {name: network["IPAddress"] for name, network in networks.items()}
