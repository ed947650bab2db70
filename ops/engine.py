"""A Docker Engine of our own: socket, data, bridge device and addresses apart from any other engine's."""

import hashlib
import http.client
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from ipaddress import IPv4Network
from pathlib import Path

from ops import firewall
from ops.daemon import Daemon, children, processes_with, send
from ops.errors import UserError
from ops.networks import choose_block, routed_networks

# Docker offers the `nvidia` driver where it finds this program on its PATH as it starts, and runs it before
# the container's process. Ours accepts every GPU: a private engine is only ever for simulated ones.
_HOOK = "nvidia-container-runtime-hook"
_HOOK_TEXT = """#!/bin/sh
# Stands in for NVIDIA's hook: accepts any GPU, as long as the driver is there.
cat >/dev/null
[ ! -e "$0.driver-absent" ]
"""
_PROGRAMS = ("dockerd", "containerd", "runc", "ip")


class PrivateEngine:
    """A dockerd with its own containerd, kept under `folder`; two of them run side by side.

    Sockets lie in a short folder of mode 700 under /run: a unix socket's path has at most 107 characters.
    `avoid` names subnets that the engine's own addresses must leave free, `options` are further ones for
    dockerd. Needs root.
    """

    def __init__(
        self, folder: Path, *, avoid: Sequence[IPv4Network] = (), options: Sequence[str] = ()
    ) -> None:
        self.folder = folder.resolve()
        self._avoid = tuple(avoid)
        self._options = tuple(options)
        self._key = hashlib.sha256(str(self.folder).encode()).hexdigest()[:10]
        self.run_dir = Path("/run") / f"tf-serving-{self._key}"
        self.bridge = f"tfs{self._key}"
        self.socket = self.run_dir / "docker.sock"
        self.docker_host = f"unix://{self.socket}"
        self._containerd_socket = self.run_dir / "containerd.sock"
        self._bin = self.folder / "bin"
        self._containerd = Daemon(
            program="containerd",
            mark=str(self._containerd_socket),
            pid_file=self.folder / "containerd.pid",
            log=self.folder / "containerd.log",
        )
        self.dockerd = Daemon(
            program="dockerd",
            mark=self.docker_host,
            pid_file=self.folder / "dockerd.pid",
            log=self.folder / "dockerd.log",
        )

    @property
    def driver_absent(self) -> Path:
        """While this file is there, no container with a GPU starts: as before a driver has been loaded."""
        return self._bin / f"{_HOOK}.driver-absent"

    def answers(self) -> bool:
        """Whether the engine's API answers."""
        return ping(self.socket)

    def whole(self) -> bool:
        """Whether it answers and can start containers: its API also answers while its containerd is gone."""
        return self._containerd.pid() is not None and self.answers()

    def start(self) -> None:
        """Start it where it is not whole yet; raises UserError with the end of the log where it can't."""
        both_run = self.dockerd.pid() is not None and self._containerd.pid() is not None
        if both_run and self._wait(self.answers, self.dockerd, 30):
            return
        self._require()
        self.stop()
        self._prepare()
        # dockerd would otherwise use the system's containerd, and share a namespace with the system's engine.
        self._containerd.start(self._containerd_arguments(), self._env())
        if not self._wait(lambda: _connects(self._containerd_socket), self._containerd, 30):
            self._fail(self._containerd)
        self._start_dockerd()
        (self.folder / "docker-host").write_text(f"{self.docker_host}\n")

    def restart_dockerd(self, *, away_s: float = 0) -> None:
        """Stop dockerd alone, and start it again; with `--live-restore=true` its containers run on."""
        self.dockerd.stop(grace_s=40)
        time.sleep(away_s)
        self._start_dockerd()

    def _start_dockerd(self) -> None:
        with firewall.others_kept():
            self.dockerd.start(self._dockerd_arguments(), self._env())
            started = self._wait(self.answers, self.dockerd, 60)
        if not started:
            self._fail(self.dockerd)

    def _env(self) -> dict[str, str]:
        env = firewall.system_env()
        return {**env, "PATH": f"{self._bin}:{env['PATH']}"}

    def stop(self) -> None:
        """Stop it, with its containers; its data stays. Does nothing where it does not run."""
        devices = [self.bridge, *self._network_devices()]
        # dockerd itself gives containers up to 15 s, those with a longer stop time a little more than that.
        self.dockerd.stop(grace_s=40)
        self._containerd.stop(grace_s=10)
        self._kill_shims()
        self._unmount()
        left = [device for device in devices if Path(f"/sys/class/net/{device}").exists()]
        if left:
            firewall.drop_rules_of(*left)
        for device in left:
            subprocess.run(["ip", "link", "delete", device], check=False, capture_output=True)
        shutil.rmtree(self.run_dir, ignore_errors=True)

    def remove(self) -> None:
        """Stop it and delete all it has: containers, networks with their devices, images, volumes, folder."""
        if self.answers():
            containers = self._docker("ps", "--all", "--quiet").split()
            if containers:
                self._docker("rm", "--force", "--volumes", *containers)
            networks = self._docker("network", "ls", "--quiet", "--filter", "type=custom").split()
            if networks:
                self._docker("network", "rm", *networks)
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _docker(self, *arguments: str) -> str:
        command = ["docker", "--host", self.docker_host, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout

    def _network_devices(self) -> list[str]:
        """The bridges of the networks that were made in it: dockerd leaves them behind as it ends."""
        if not self.answers():
            return []
        chosen = ["--filter", "type=custom", "--filter", "driver=bridge"]
        networks = self._docker("network", "ls", "--quiet", "--no-trunc", *chosen).split()
        if not networks:
            return []
        found = json.loads(self._docker("network", "inspect", *networks))
        return [
            network["Options"].get("com.docker.network.bridge.name", f"br-{network['Id'][:12]}")
            for network in found
        ]

    def _require(self) -> None:
        if os.geteuid() != 0:
            raise UserError(
                "A private Docker Engine needs root: run the command with sudo, or start Docker yourself."
            )
        path = firewall.system_env()["PATH"]
        missing = [name for name in _PROGRAMS if shutil.which(name, path=path) is None]
        if missing:
            raise UserError(
                f"A private Docker Engine needs {', '.join(missing)}, not found on PATH: "
                "apt-get install docker.io iproute2"
            )

    def _prepare(self) -> None:
        for folder in (self.folder, self._bin):
            folder.mkdir(parents=True, exist_ok=True)
        self.run_dir.mkdir(mode=0o700)
        hook = self._bin / _HOOK
        hook.write_text(_HOOK_TEXT)
        hook.chmod(0o755)
        # Both daemons read the machine's own configuration unless they are given another.
        (self.folder / "daemon.json").write_text("{}\n")
        (self.folder / "containerd.toml").write_text(
            'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
        )
        block = choose_block(self._key, [*routed_networks(), *self._avoid])
        self._pool = block.pool
        gateway = f"{block.bridge.network_address + 1}/{block.bridge.prefixlen}"
        for command in (
            ["ip", "link", "add", "name", self.bridge, "type", "bridge"],
            ["ip", "address", "add", gateway, "dev", self.bridge],
            ["ip", "link", "set", self.bridge, "up"],
        ):
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode != 0:
                self.stop()
                raise UserError(
                    f"This machine does not let us make a network bridge ({shlex.join(command)}: "
                    f"{done.stderr.strip()}).{_UNPRIVILEGED}"
                )

    def _containerd_arguments(self) -> list[str]:
        return [
            f"--config={self.folder / 'containerd.toml'}",
            f"--address={self._containerd_socket}",
            f"--root={self.folder / 'containerd'}",
            f"--state={self.run_dir / 'containerd'}",
        ]

    def _dockerd_arguments(self) -> list[str]:
        return [
            f"--host={self.docker_host}",
            f"--containerd={self._containerd_socket}",
            f"--config-file={self.folder / 'daemon.json'}",
            f"--data-root={self.folder / 'data'}",
            f"--exec-root={self.run_dir / 'exec'}",
            f"--pidfile={self.run_dir / 'dockerd.pid'}",
            f"--bridge={self.bridge}",
            f"--default-address-pool=base={self._pool},size=24",
            # The systemd driver needs D-Bus, which a bare machine or a container may lack.
            "--exec-opt=native.cgroupdriver=cgroupfs",
            "--live-restore=false",
            *self._options,
            *self._firewall_arguments(),
        ]

    def _firewall_arguments(self) -> list[str]:
        if firewall.provide_iptables(self._bin):
            return []
        # Published ports still answer, by Docker's own proxy.
        return ["--iptables=false", "--ip-masq=false"]

    def _wait(self, condition: Callable[[], bool], daemon: Daemon, patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if condition():
                return True
            if daemon.pid() is None:
                return False
            time.sleep(0.05)
        return False

    def _fail(self, daemon: Daemon) -> None:
        running = daemon.pid() is not None
        tail = daemon.log_tail()
        self.stop()
        what = "does not answer" if running else "ended at once"
        hint = _UNPRIVILEGED if "not permitted" in tail or "permission denied" in tail else ""
        raise UserError(f"{daemon.program} {what}.{hint}\nThe end of {daemon.log}:\n{tail}")

    def _kill_shims(self) -> None:
        """End the containers that a killed containerd left behind; the shims name its socket."""
        # One that was being started brings forth another one after the first look.
        for _ in range(20):
            shims = processes_with(str(self._containerd_socket))
            if not shims:
                return
            for shim in shims:
                for pid in (*children(shim), shim):
                    send(pid, signal.SIGKILL)
            time.sleep(0.05)

    def _unmount(self) -> None:
        """Let go of what a killed engine left mounted, innermost first."""
        roots = (f"{self.folder}/", f"{self.run_dir}/")
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        points = [line.split()[4].encode().decode("unicode_escape") for line in lines]
        for point in sorted((p for p in points if p.startswith(roots)), reverse=True):
            subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)


_UNPRIVILEGED = (
    " It looks like a container without privileges: run that with --privileged, or point DOCKER_HOST at an "
    "engine that you run. `make preview STACK=prod` works without one."
)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ping(path: Path, timeout_s: float = 5) -> bool:
    """Whether a Docker Engine answers on a unix socket."""
    connection = _UnixConnection(path, timeout_s)
    try:
        connection.request("GET", "/_ping")
        return connection.getresponse().read() == b"OK"
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(str(path)) == 0
