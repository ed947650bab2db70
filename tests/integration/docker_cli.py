"""Looks at an engine with the `docker` command."""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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

    @contextmanager
    def lives(self) -> Iterator[list[tuple[str, str]]]:
        """Which container died or became healthy, in order: there when the block has ended.

        Noted as it happens: the engine keeps its last 256 events, and each run of a health check is three.
        """
        filters = ["--filter=type=container", "--filter=event=die", "--filter=event=health_status"]
        command = ["docker", "--host", self.docker_host, "events", "--format={{json .}}", *filters]
        found: list[tuple[str, str]] = []
        # From a moment ago: the stream begins when the engine is asked, not when the command is started.
        process = subprocess.Popen(
            [*command, f"--since={time.time():.3f}"], stdout=subprocess.PIPE, text=True
        )
        try:
            yield found
        finally:
            time.sleep(1)  # what happened at the very end arrives
            process.terminate()
            said, _ = process.communicate()
        found.extend(
            (event["Actor"]["Attributes"]["name"], event["Action"])
            for event in map(json.loads, said.splitlines())
            if event["Action"] in ("die", "health_status: healthy")
        )

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
