"""A copy of this checkout in a folder of a test's own, where `make` may do what it likes."""

import os
import re
import shutil
import socket
import subprocess
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from ops.engine import PrivateEngine
from ops.networks import routed_networks
from ops.paths import ROOT
from toolchain.cache import cache_root

_USERS = ("DOCKER_", "PULUMI_", "TOOLCHAIN", "MAKE", "MFLAGS", "STACK", "ARGS")


@dataclass(frozen=True)
class Checkout:
    """`home` stands in for the user's, so that a real `pulumi login` is neither seen nor touched."""

    folder: Path
    home: Path
    rest_port: int

    def env(self) -> dict[str, str]:
        """A user's environment, with the shared cache of builds."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_USERS)}
        return {**kept, "HOME": str(self.home), "TF_SERVING_CACHE": str(cache_root())}

    def command(self, *arguments: str) -> list[str]:
        """A make command line."""
        return ["make", "--no-print-directory", *arguments]

    def make(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run make and hand back what it said."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.env(),
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=900,
        )

    def git_status(self) -> str:
        """What `git status` calls changed or new."""
        return self._git("status", "--porcelain")

    def engine(self) -> PrivateEngine:
        """The private engine that `make up` starts in this copy."""
        return PrivateEngine(self.folder / ".local" / "docker")

    def _git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=self.folder, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()


def copy_checkout(folder: Path, home: Path, subnet: str) -> Checkout:
    """Copy what git knows or would add, with ports and a subnet of its own for the local stack; committed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    home.mkdir(parents=True, exist_ok=True)
    rest, grpc, metrics = free_ports(3)
    stack_file = folder / "Pulumi.local.yaml"
    text = re.sub(r"subnet: \S+", f"subnet: {subnet}", stack_file.read_text())
    ports = f"rest_port: {rest}\n    grpc_port: {grpc}\n    metrics_port: {metrics}"
    text = text.replace("tf-serving:front_end:\n", f"tf-serving:front_end:\n    {ports}\n")
    stack_file.write_text(text)
    made = Checkout(folder, home, rest)
    for command in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "copy"]):
        made._git(*command)
    return made


def free_subnet() -> str:
    """A /24 that nothing on this machine has a route to: an engine of anybody's may have any fixed one."""
    taken = routed_networks()
    blocks = IPv4Network("10.96.0.0/12").subnets(new_prefix=24)
    return str(next(block for block in blocks if not any(block.overlaps(other) for other in taken)))


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
