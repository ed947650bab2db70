"""A stack of a drill's own: free ports, a free subnet, models in its folder; what its engine must hold."""

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import yaml

from components.plan import Plan, make_plan
from components.stack_file import load_settings, own_values
from images.samples import write_sample_models
from ops import leftovers
from ops.daemon import children, send
from ops.heal import reconcile
from ops.hosts import Host
from ops.networks import routed_networks
from ops.stack import Stack
from ops.state import Backend
from tests.envoy.harness import free_ports
from tests.integration import predict
from tests.integration.docker_cli import DockerCli
from tests.pulumi_project import CHECKOUT, Project

Config = dict[str, Any]
# Private engines take theirs from 172.16.0.0/12, so the two never meet.
_SUBNETS = IPv4Network("10.64.0.0/10")


def free_subnets(count: int) -> list[str]:
    """/24 networks that nothing here has a route to; other runs look from another place on."""
    routed = routed_networks()
    candidates = list(_SUBNETS.subnets(new_prefix=24))
    first = secrets.randbelow(len(candidates))
    free = (
        candidate
        for candidate in (*candidates[first:], *candidates[:first])
        if not any(candidate.overlaps(network) for network in routed)
    )
    return [str(next(free)) for _ in range(count)]


def local_config(models: Path) -> Config:
    """The local stack's file with ports, a subnet and a model folder of its own."""
    write_sample_models(models)
    rest_port, grpc_port, metrics_port = free_ports(3)
    config = own_values(yaml.safe_load((CHECKOUT / "Pulumi.local.yaml").read_text())["config"])
    config["nodes"][0]["subnet"] = free_subnets(1)[0]  # type: ignore[index]
    config["pools"][0]["models"][0]["path"] = str(models / predict.MODEL)  # type: ignore[index]
    # Servers know no SIGTERM: each stop takes all of it.
    config["rollout"]["stop_timeout_s"] = 1  # type: ignore[index]
    config["front_end"] = {
        "bind": "127.0.0.1",
        "rest_port": rest_port,
        "grpc_port": grpc_port,
        "metrics_port": metrics_port,
    }
    return config


@dataclass(frozen=True)
class Drill:
    """A stack in a project of its own and the engine that it is in."""

    project: Project
    engine: DockerCli
    stack: str
    config: Config

    def write(self) -> None:
        """Write the stack file as `config` has it now."""
        self.project.write_stack(self.stack, self.config)

    def plan(self) -> Plan:
        """What `config` comes to now."""
        settings = load_settings(self.config, f"Pulumi.{self.stack}.yaml")
        return make_plan(settings, stack=self.stack, project_folder=str(self.project.folder))

    def up(self) -> None:
        """`pulumi up`, which must succeed, and after which the engine must hold the plan and nothing else."""
        done = self.project.up(self.stack, "--suppress-outputs")
        assert done.code == 0, done.output
        self.assert_whole()

    def assert_whole(self) -> None:
        """The engine holds the plan's containers, healthy, its networks and volumes; nothing else.

        A publisher is healthy for a moment and ends.
        """
        plan = self.plan()
        configs = [config for node in plan.nodes for config in (*node.configs, node.front_end.config)]
        published = {config.container for config in configs}
        published |= {node.front_end.acceptance for node in plan.nodes}
        published |= {instance.drain.container for instance in plan.instances}
        wanted = {instance.container for instance in plan.instances}
        wanted |= {node.front_end.container for node in plan.nodes}
        wait_until(lambda: wanted <= self._healthy(), f"{sorted(wanted)} healthy")
        shown = self.engine.run("ps", "--all")
        there = wanted | published
        assert (self._healthy() - published, self.engine.names("container")) == (wanted, there), shown
        for name in published:
            # 143, 255: ended or killed with its engine.
            assert self.engine.inspect(name)["State"]["ExitCode"] in (0, 143, 255), shown
        assert self.engine.names("volume") == {config.volume for config in configs}
        networks = {net.name for node in plan.nodes for net in (node.serving_network, node.front_network)}
        # A list: an engine may well hold two networks of one name.
        listed = self.engine.run("network", "ls", "--format", "{{.Name}}").split()
        assert sorted(listed) == sorted(networks | {"bridge", "host", "none"})

    def _healthy(self) -> set[str]:
        shown = self.engine.run("ps", "--filter", "health=healthy", "--format", "{{.Names}}")
        return set(shown.split())

    def destroy(self) -> None:
        """`pulumi destroy`, after which the engine must be empty."""
        gone = self.project.destroy(self.stack)
        assert gone.code == 0, gone.output
        assert self.engine.names("container") == set()
        assert self.engine.names("network") == {"bridge", "host", "none"}
        assert self.engine.names("volume") == set()

    def answers(self) -> set[str]:
        """Who answers on the front end's REST port for the first pool's model."""
        port = self.config["front_end"]["rest_port"]
        found = [predict.rest(port) for _ in range(20)]
        assert {answer.prediction for answer in found} == {2.5}
        return {answer.served_by for answer in found}


class BackgroundUp:
    """A `pulumi up` that runs while the test looks at it; ended with all that it started."""

    def __init__(self, drill: Drill, log: Path) -> None:
        self.log = log
        command = [drill.project._pulumi, "up", "--yes", "--skip-preview", "--stack", drill.stack]
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, "--non-interactive", "--color", "never"],
                cwd=drill.project.folder,
                env=drill.project.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> "BackgroundUp":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def said(self) -> str:
        """What it has printed so far."""
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL for the CLI and all below it: a plugin that lives on would finish what it is at."""
        below = descendants(self.process.pid)
        self.process.kill()
        for pid in below:
            send(pid, signal.SIGKILL)
        self.process.wait()
        for pid in below:
            wait_until(lambda pid=pid: not _lives(pid), f"process {pid} gone")  # type: ignore[misc]


def descendants(pid: int) -> list[int]:
    """Every process below one."""
    direct = children(pid)
    return [*direct, *(below for child in direct for below in descendants(child))]


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], what: str, patience_s: float = 60) -> None:
    """Poll until a condition holds."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)


def environment(docker_host: str) -> dict[str, str]:
    """This process's environment with another engine."""
    return {**os.environ, "DOCKER_HOST": docker_host}


class DrillStack(Stack):
    """The drill's stack as `ops` sees one, on the drill's own project."""

    @staticmethod
    def of(drill: Drill) -> "DrillStack":
        """The stack, with a backend of ours: locks of runs that are gone are freed."""
        project = drill.project
        backend = Backend(project.folder.parent)
        return DrillStack(name=drill.stack, pulumi=Path(project._pulumi), env=project.env, backend=backend)

    def run(self, *arguments: str) -> int:
        """Run a command where the drill's project is."""
        return self._in_project(*arguments).returncode

    def query(self, *arguments: str) -> str:
        """The output of a command that must succeed."""
        done = self._in_project(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _in_project(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        assert self.backend is not None
        return subprocess.run(
            [str(self.pulumi), *arguments, "--stack", self.name, "--non-interactive"],
            cwd=self.backend.folder / "project",
            env=dict(self.env),
            capture_output=True,
            text=True,
            check=False,
        )


def heal(drill: Drill) -> None:
    """What `make heal` does."""
    assert reconcile(DrillStack.of(drill), _hosts(drill), ask=False) == 0


def prepare_as_make_up_does(drill: Drill) -> None:
    """What `make up` does before it runs Pulumi."""
    stack = DrillStack.of(drill)
    stack.free_stale_locks()
    leftovers.clear(stack, lambda: _hosts(drill))


def _hosts(drill: Drill) -> dict[str, Host]:
    return {node.name: Host(drill.engine.docker_host) for node in drill.plan().nodes}
