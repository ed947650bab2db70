"""Installs a Docker Engine where a machine has none: Debian's docker.io, by apt."""

import os
import shutil
import subprocess
import time

from ops.errors import UserError
from ops.firewall import system_env
from toolchain.progress import step

WITHOUT_ENGINE = (
    "Without an engine the local stack can't run; `make preview STACK=prod` shows what would be deployed to "
    "a real server, and needs none."
)
_APT_PATIENCE_S = 300.0


def install_docker() -> None:
    """Install Debian's docker.io where dockerd, containerd, docker or ip is missing. Needs root and apt."""
    path = system_env()["PATH"]
    if all(shutil.which(name, path=path) for name in ("dockerd", "containerd", "docker", "ip")):
        return
    with step("Install docker.io by apt", "about 1 min"):
        _apt("update", "-qq")
        packages = ["docker.io", "iproute2", "iptables"]
        # Newer Debians keep the client in a package of its own.
        if _apt_knows("docker-cli"):
            packages.append("docker-cli")
        _apt("install", "-y", "-qq", "--no-install-recommends", *packages)


def _apt(*arguments: str) -> None:
    command = ["apt-get", "-o", "DPkg::Lock::Timeout=300", *arguments]
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    deadline = time.monotonic() + _APT_PATIENCE_S
    while True:
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        # DPkg::Lock::Timeout is not for the lock of the package lists.
        if "Could not get lock" not in done.stderr or time.monotonic() > deadline:
            break
        time.sleep(2)
    if done.returncode != 0:
        tail = "\n".join(f"  {line}" for line in (done.stdout + done.stderr).strip().splitlines()[-15:])
        raise UserError(
            f"`apt-get {' '.join(arguments)}` failed with exit code {done.returncode}:\n{tail}\n"
            f"{WITHOUT_ENGINE}"
        )


def _apt_knows(package: str) -> bool:
    done = subprocess.run(["apt-cache", "show", package], capture_output=True, check=False)
    return done.returncode == 0
