"""What stands in for the machines of a cluster: a sshd, certificates, network namespaces; all here."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from ops.engine import PrivateEngine
from ops.firewall import SYSTEM_PATH
from tests.envoy.harness import free_ports
from tests.integration.drill import wait_until
from tests.pulumi_project import CHECKOUT

_SSHD = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile {folder}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
SetEnv DOCKER_HOST={docker_host} PATH={path}
"""


@dataclass(frozen=True)
class Ssh:
    """A sshd on the loopback, whose users' `docker` reaches one engine; only the key in `folder` gets in."""

    folder: Path
    port: int

    @property
    def endpoint(self) -> str:
        """As in a stack file."""
        return f"ssh://root@127.0.0.1:{self.port}"

    def options(self, known_hosts: str = "known_hosts") -> list[str]:
        """Options for ssh in a stack file: this sshd's host key alone is accepted."""
        words = [
            "BatchMode=yes",
            "StrictHostKeyChecking=yes",
            "ConnectTimeout=10",
            f"UserKnownHostsFile={self.folder / known_hosts}",
            "GlobalKnownHostsFile=/dev/null",
            f"IdentityFile={self.folder / 'user'}",
            "IdentitiesOnly=yes",
        ]
        return [part for word in words for part in ("-o", word)]

    def write_known_hosts(self, name: str, key: str) -> None:
        """Say which public key this port's host has."""
        words = (self.folder / f"{key}.pub").read_text().split()
        (self.folder / name).write_text(f"[127.0.0.1]:{self.port} {words[0]} {words[1]}\n")


@contextmanager
def sshd(folder: Path, docker_host: str, programs: Path) -> Iterator[Ssh]:
    """A sshd with keys of its own; `programs` comes first on its users' PATH."""
    program = shutil.which("sshd", path=SYSTEM_PATH)
    if program is None:
        pytest.skip("sshd is not installed (apt-get install openssh-server; its service need not run)")
    folder.mkdir()
    for name in ("host", "user", "other"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    [port] = free_ports(1)
    path = f"{programs}:{SYSTEM_PATH}"
    config = _SSHD.format(port=port, folder=folder, docker_host=docker_host, path=path)
    (folder / "config").write_text(config)
    # Its users' processes start in an empty folder that Debian's service makes.
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    made = Ssh(folder, port)
    made.write_known_hosts("known_hosts", "host")
    made.write_known_hosts("wrong_hosts", "other")
    log = folder / "log"
    with log.open("wb") as out:
        running = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "config")], stderr=out)
    try:
        wait_until(
            lambda: "Server listening" in log.read_text() or running.poll() is not None, "sshd listens"
        )
        assert running.poll() is None, log.read_text()
        yield made
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait()


def make_certificates(folder: Path) -> None:
    """A CA, and from it `server/` (for 127.0.0.1) and `client/`, each with ca.pem, cert.pem and key.pem."""
    folder.mkdir()
    _openssl(folder, "req", "-x509", *_NEW_KEY, "-keyout", "ca-key.pem", "-out", "ca.pem", "-subj", "/CN=CA")
    for role in ("server", "client"):
        (folder / role).mkdir()
        shutil.copy(folder / "ca.pem", folder / role)
        extensions = folder / f"{role}.ext"
        extensions.write_text(f"subjectAltName=IP:127.0.0.1\nextendedKeyUsage={role}Auth\n")
        request = ["-keyout", f"{role}/key.pem", "-out", f"{role}.csr", "-subj", f"/CN={role}"]
        _openssl(folder, "req", *_NEW_KEY, *request)
        signing = ["-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial", "-extfile", extensions.name]
        _openssl(
            folder, "x509", "-req", "-in", f"{role}.csr", *signing, "-days=1", "-out", f"{role}/cert.pem"
        )


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _openssl(folder: Path, *arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@contextmanager
def network_namespace(name: str, link: IPv4Network) -> Iterator[str]:
    """A network of its own, which this machine reaches at the address that is yielded."""
    here, there = str(link[1]), str(link[2])
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
    try:
        _ip("link", "add", f"{name}h", "type", "veth", "peer", "name", f"{name}c", "netns", name)
        _ip("address", "add", f"{here}/{link.prefixlen}", "dev", f"{name}h")
        _ip("link", "set", f"{name}h", "up")
        _ip("-n", name, "address", "add", f"{there}/{link.prefixlen}", "dev", f"{name}c")
        for device in (f"{name}c", "lo"):
            _ip("-n", name, "link", "set", device, "up")
        yield there
    finally:
        _ip("netns", "delete", name)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def start_in(namespace: str, engine: PrivateEngine) -> None:
    """Start an engine whose published ports are in a namespace; its socket is everybody's."""
    script = (
        "import sys; from pathlib import Path; from ops.engine import PrivateEngine; "
        "PrivateEngine(Path(sys.argv[1])).start()"
    )
    command = ["nsenter", f"--net=/run/netns/{namespace}", sys.executable, "-c", script, str(engine.folder)]
    done = subprocess.run(
        command, cwd=CHECKOUT, env=os.environ, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
