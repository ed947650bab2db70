"""Images by digest from a real registry: pinned, pulled ahead, run as pinned, kept."""

import http.client
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from components.image_lock import FILE
from ops import pin
from tests.envoy.harness import free_ports, wait_for
from tests.integration import predict
from tests.integration.docker_cli import DockerCli
from tests.integration.small_stack import free_subnets, small_stack
from tests.pulumi_project import Project

pytestmark = pytest.mark.integration

STACK = "pinned"
_LOCAL = {"server": "tf-serving-simulator:2.14.1-gpu", "envoy": "tf-serving-envoy:1.40.0"}
_CONFIG = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Debian's container registry on loopback, out of its package without installing that; `host:port`."""
    folder = tmp_path_factory.mktemp("registry")
    program = shutil.which("docker-registry") or _unpacked(folder)
    [port] = free_ports(1)
    config = folder / "config.yml"
    config.write_text(_CONFIG.format(folder=folder / "data", port=port))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "serve", str(config)], stdout=log, stderr=log)
    try:
        wait_for("the registry answers", lambda: _status(port, "/v2/") == 200)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _unpacked(folder: Path) -> str:
    if shutil.which("apt-get") is None:
        pytest.skip("no docker-registry here, and no apt-get to have one by")
    got = subprocess.run(["apt-get", "download", "-qq", "docker-registry"], cwd=folder, check=False)
    if got.returncode != 0:
        subprocess.run(["apt-get", "-o", "DPkg::Lock::Timeout=300", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "download", "-qq", "docker-registry"], cwd=folder, check=True)
    [package] = folder.glob("docker-registry_*.deb")
    subprocess.run(["dpkg", "-x", str(package), str(folder / "unpacked")], check=True)
    return str(folder / "unpacked" / "usr" / "bin" / "docker-registry")


def _status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.fixture(scope="module")
def pushed(registry: str, engine: DockerCli) -> dict[str, str]:
    """The local images under names of the registry, pushed there and gone from the engine; digest by name."""
    names = {role: f"{registry}/team/{name}" for role, name in _LOCAL.items()}
    digests = {}
    for role, name in names.items():
        engine.run("tag", _LOCAL[role], name)
        engine.run("push", "--quiet", name)
        digests[name] = engine.run(
            "image", "inspect", "--format", "{{index .RepoDigests 0}}", name
        ).partition("@")[2]
        engine.run("image", "rm", name)
    return digests


def test_images_are_pinned_pulled_ahead_run_by_digest_and_kept(
    pushed: dict[str, str], engine: DockerCli, project: Project, tmp_path: Path
) -> None:
    [subnet] = free_subnets(1)
    config = small_stack(tmp_path / "models", subnet=subnet, gpus=[0])
    server, envoy = pushed
    config["images"] = {"server": server, "envoy": envoy}
    project.write_stack(STACK, config)
    assert pin.pin(STACK, project.folder, tmp_path / "no-logins.json") == pushed
    assert yaml.safe_load((project.folder / FILE).read_text())["images"] == pushed
    try:
        made = project.up(STACK)
        assert made.code == 0, made.output
        lines = made.output.splitlines()
        pulled = next(n for n, line in enumerate(lines) if "here-server-image created" in line)
        started = next(n for n, line in enumerate(lines) if "here-gpu0-server creating" in line)
        assert pulled < started
        image = engine.run("inspect", "--format", "{{.Config.Image}}", f"{STACK}.here-gpu0")
        assert image == f"{server}@{pushed[server]}"
        assert predict.rest(config["front_end"]["rest_port"]).prediction == 2.5
        again = project.up(STACK, "--refresh", "--expect-no-changes")
        assert again.code == 0, again.output
    finally:
        project.destroy(STACK)
    assert pushed[server] in engine.run("image", "ls", "--digests", "--format", "{{.Digest}}")
