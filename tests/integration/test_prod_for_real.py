"""The committed `prod` stack really brought up: over ssh, over TLS; and two nodes side by side.

What differs from the committed file: the model's folder, ports and address, how the engine is reached; and,
since the machine here is no 128-CPU server with 512 GB of RAM, threads in place of CPU sets, and the memory.
GPUs, UUIDs, driver, batching and all the rest are as committed. The engine knows the local images by the
names of the real ones. `nvidia-smi` is a script.
"""

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest
import yaml

from components.stack_file import load_stack_file, own_values
from images.build import ensure_images
from images.samples import write_sample_models
from ops import paths, preflight
from ops.engine import PrivateEngine
from tests.envoy.harness import free_ports
from tests.integration.docker_cli import DockerCli
from tests.integration.drill import Config, Drill, environment, free_subnets, local_config
from tests.integration.machines import Ssh, make_certificates, network_namespace, sshd, start_in
from tests.pulumi_project import CHECKOUT, Project
from toolchain.tools import Toolchain

pytestmark = pytest.mark.integration

MEMORY_MIB = 4096


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls") / "made"
    make_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def tls_port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def engine(
    tmp_path_factory: pytest.TempPathFactory, certificates: Path, tls_port: int
) -> Iterator[PrivateEngine]:
    """One engine that answers on its socket and, over TLS, on a port of the loopback."""
    server = certificates / "server"
    files = [f"--tlscacert={server}/ca.pem", f"--tlscert={server}/cert.pem", f"--tlskey={server}/key.pem"]
    options = [f"--host=tcp://127.0.0.1:{tls_port}", "--tlsverify", *files]
    made = PrivateEngine(tmp_path_factory.mktemp("engine"), options=options)
    made.start()
    try:
        ensure_images(made.docker_host)
        for real, local in zip(_images("prod"), _images("local"), strict=True):
            subprocess.run(["docker", "--host", made.docker_host, "tag", local, real], check=True)
        yield made
    finally:
        made.remove()


def _images(stack: str) -> tuple[str, str]:
    images = load_stack_file(CHECKOUT / f"Pulumi.{stack}.yaml").images
    return images.server, images.envoy


@pytest.fixture
def nowhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A socket where nothing is, as this process's own engine: what reaches one does so by the stack file."""
    nowhere = tmp_path / "nowhere.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{nowhere}")
    return nowhere


def _prod(folder: Path, docker: Config) -> Config:
    """The committed file with what this machine makes necessary, see above."""
    write_sample_models(folder / "models")
    rest_port, grpc_port, metrics_port = free_ports(3)
    config: Config = own_values(yaml.safe_load((CHECKOUT / "Pulumi.prod.yaml").read_text())["config"])
    [node], [pool] = config["nodes"], config["pools"]
    node |= {"address": "127.0.0.1", "bind": "127.0.0.1", "docker": docker, "subnet": free_subnets(1)[0]}
    node |= {"memory_mib": MEMORY_MIB}
    for gpu in node["gpus"]:
        del gpu["cpus"]
    pool["threads"] = {"intra_op": 1, "inter_op": 1}
    pool["models"][0] = {"name": "resnet50", "path": str(folder / "models" / "half_plus_two")}
    pool["memory"] = {"container_mib": 256, "shm_mib": 64}
    config["front_end"] = {
        "bind": "127.0.0.1",
        "rest_port": rest_port,
        "grpc_port": grpc_port,
        "metrics_port": metrics_port,
    }
    return config


def _nvidia_smi(folder: Path, config: Config) -> None:
    """A stub that knows the GPUs of a stack file."""
    folder.mkdir()
    [node] = config["nodes"]
    lines = "\\n".join(f"{g['index']}, {g['uuid']}, {node['driver']}, Disabled" for g in node["gpus"])
    script = folder / "nvidia-smi"
    script.write_text(f"#!/bin/sh\nprintf '{lines}\\n'\n")
    script.chmod(0o755)


def _deployed(drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    """Preflight, `up`, predictions of every GPU, `up` again without a change, `destroy`."""
    drill.write()
    monkeypatch.setattr(paths, "ROOT", drill.project.folder)
    assert preflight.run(drill.stack) == 0
    try:
        drill.up()
        outputs = drill.project.outputs(drill.stack)
        assert _served_by(str(outputs["rest_url"]), "resnet50", 40) == {f"gpu-01-gpu{i}" for i in range(4)}
        again = drill.project.up(drill.stack, "--refresh", "--expect-no-changes", "--suppress-outputs")
        assert again.code == 0, again.output
    finally:
        drill.destroy()


def _served_by(url: str, model: str, times: int) -> set[str]:
    found = set()
    for _ in range(times):
        body = json.dumps({"instances": [1.0]}).encode()
        asked = f"{url}/v1/models/{model}:predict"
        with urllib.request.urlopen(asked, body, timeout=10) as answer:  # noqa: S310 - the stack's own URL
            assert json.load(answer) == {"predictions": [2.5]}
            found.add(answer.headers["x-served-by"])
    return found


@pytest.fixture
def by_ssh(engine: PrivateEngine, tmp_path: Path) -> Iterator[Ssh]:
    with sshd(tmp_path / "ssh", engine.docker_host, tmp_path / "bin") as running:
        yield running


@pytest.fixture
def ssh_drill(
    by_ssh: Ssh, engine: PrivateEngine, nowhere_else: Path, tmp_path: Path, toolchain: Toolchain
) -> Drill:
    config = _prod(tmp_path, {"endpoint": by_ssh.endpoint, "ssh_options": by_ssh.options()})
    _nvidia_smi(tmp_path / "bin", config)
    project = Project(tmp_path, toolchain, environment(f"unix://{nowhere_else}"))
    return Drill(project, DockerCli(engine.docker_host), "prod", config)


def test_prod_is_deployed_over_ssh(ssh_drill: Drill, monkeypatch: pytest.MonkeyPatch) -> None:
    _deployed(ssh_drill, monkeypatch)


def test_a_host_with_another_key_is_refused_by_preflight_and_by_up(
    ssh_drill: Drill, by_ssh: Ssh, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ssh_drill.config["nodes"][0]["docker"]["ssh_options"] = by_ssh.options("wrong_hosts")
    ssh_drill.write()
    monkeypatch.setattr(paths, "ROOT", ssh_drill.project.folder)
    assert preflight.run("prod") == 1
    assert "Host key verification failed" in capsys.readouterr().out
    refused = ssh_drill.project.up("prod")
    ssh_drill.project.destroy("prod")
    assert refused.code != 0
    assert ssh_drill.engine.names("network") == {"bridge", "host", "none"}


@pytest.fixture
def tls_drill(
    engine: PrivateEngine,
    certificates: Path,
    tls_port: int,
    nowhere_else: Path,
    tmp_path: Path,
    toolchain: Toolchain,
    monkeypatch: pytest.MonkeyPatch,
) -> Drill:
    # In the home of whoever deploys, as a team's stack file would have it.
    docker = {"endpoint": f"tcp://127.0.0.1:{tls_port}", "cert_path": "~/client"}
    monkeypatch.setenv("PULUMI_HOME", os.environ.get("PULUMI_HOME", str(Path.home() / ".pulumi")))
    monkeypatch.setenv("HOME", str(certificates))
    project = Project(tmp_path, toolchain, environment(f"unix://{nowhere_else}"))
    return Drill(project, DockerCli(engine.docker_host), "prod", _prod(tmp_path, docker))


def test_prod_is_deployed_over_tls(
    tls_drill: Drill, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _deployed(tls_drill, monkeypatch)
    assert "over tcp:// only the engine answers" in capsys.readouterr().out


def test_an_engine_whose_certificate_another_ca_signed_is_refused_by_preflight_and_by_up(
    tls_drill: Drill,
    certificates: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_certificates(tmp_path / "another")
    mixed = tmp_path / "mixed"
    shutil.copytree(certificates / "client", mixed)
    shutil.copy(tmp_path / "another" / "ca.pem", mixed)
    tls_drill.config["nodes"][0]["docker"]["cert_path"] = str(mixed)
    tls_drill.write()
    monkeypatch.setattr(paths, "ROOT", tls_drill.project.folder)
    assert preflight.run("prod") == 1
    assert "certificate signed by unknown authority" in capsys.readouterr().out
    refused = tls_drill.project.up("prod")
    tls_drill.project.destroy("prod")
    assert refused.code != 0
    assert "certificate signed by unknown authority" in refused.output
    assert tls_drill.engine.names("network") == {"bridge", "host", "none"}


@pytest.mark.parametrize("options", [[], ["--tls"], ["--tlsverify", "--tlscacert={client}/ca.pem"]])
def test_a_client_without_a_certificate_of_the_ca_gets_nothing_from_the_engine(
    engine: PrivateEngine, certificates: Path, tls_port: int, options: list[str]
) -> None:
    given = [option.format(client=certificates / "client") for option in options]
    # An empty folder: the user's own ~/.docker may hold certificates.
    command = ["docker", "--config", str(certificates), "--host", f"tcp://127.0.0.1:{tls_port}", *given, "ps"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode != 0, done.stdout) == (True, "")


def test_two_nodes_serve_side_by_side_each_by_its_own_front_end(
    tmp_path: Path, toolchain: Toolchain, nowhere_else: Path
) -> None:
    # One front end's ports are every front end's: each engine publishes in a network of its own.
    links = [IPv4Network(subnet) for subnet in free_subnets(2)]
    engines = [PrivateEngine(tmp_path / f"engine{i}") for i in range(2)]
    names = [f"tfs{engine.run_dir.name[-8:]}" for engine in engines]
    config = local_config(tmp_path / "models")
    config["front_end"]["bind"] = "0.0.0.0"  # noqa: S104 - in a namespace that only this machine reaches
    config["pools"][0]["slots"] = [{"node": f"gpu-0{i}", "gpus": [0, 1]} for i in (1, 2)]
    [template] = config["nodes"]
    project = Project(tmp_path, toolchain, environment(f"unix://{nowhere_else}"))
    with network_namespace(names[0], links[0]) as first, network_namespace(names[1], links[1]) as second:
        config["nodes"] = [
            {
                **template,
                "name": f"gpu-0{i + 1}",
                "address": address,
                "docker": {"endpoint": engines[i].docker_host},
                "subnet": free_subnets(1)[0],
                "gpus": [
                    {**gpu, "uuid": f"GPU-0000000{i}-0000-4000-8000-00000000000{gpu['index']}"}
                    for gpu in template["gpus"]
                ],
            }
            for i, address in enumerate((first, second))
        ]
        try:
            for name, engine in zip(names, engines, strict=True):
                start_in(name, engine)
                ensure_images(engine.docker_host)
            project.write_stack("two", config)
            done = project.up("two", "--suppress-outputs")
            assert done.code == 0, done.output
            urls = project.outputs("two")["rest_urls"]
            assert urls == [f"http://{host}:{config['front_end']['rest_port']}" for host in (first, second)]
            served = [_served_by(url, "half_plus_two", 20) for url in urls]
            assert served == [{f"gpu-0{i}-gpu0", f"gpu-0{i}-gpu1"} for i in (1, 2)]
            gone = project.destroy("two")
            assert gone.code == 0, gone.output
            for engine in engines:
                assert DockerCli(engine.docker_host).names("container") == set()
                assert DockerCli(engine.docker_host).names("network") == {"bridge", "host", "none"}
        finally:
            for engine in engines:
                engine.remove()
