"""A stack deployed from a shell full of secrets and of hints at other engines: it takes neither.

Canary values are looked for in state, output, logs and containers.
"""

import copy
import json
import os
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from components.envoy_edge import EDGE_FILES
from ops.inspection import declared
from tests.envoy import stand_ins
from tests.envoy.harness import ask, free_ports, wait_for
from tests.integration.docker_cli import DockerCli
from tests.integration.small_stack import free_subnets, small_stack
from tests.pulumi_project import Project
from tests.stacks import Config
from toolchain.tools import Toolchain

pytestmark = pytest.mark.integration

STACK = "secret"
PASSPHRASE = "canary-passphrase-4711"
OPERATORS = {
    "AWS_SECRET_ACCESS_KEY": "canary-aws-0815",
    "DOCKER_AUTH_CONFIG": '{"auths": {"registry.example.com": {"auth": "Y2FuYXJ5LWF1dGg="}}}',
    "GITHUB_TOKEN": "canary-github-2342",
    "DOCKER_REGISTRY_USER": "somebody",
    "DOCKER_REGISTRY_PASS": "canary-registry-6174",
}
# What the Docker provider takes for its own settings where it is not told otherwise.
OTHER_ENGINE = {
    "DOCKER_HOST": "unix:///nonexistent/docker.sock",
    "DOCKER_CONTEXT": "elsewhere",
    "DOCKER_CERT_PATH": "/nonexistent",
    "DOCKER_CA_MATERIAL": "canary-ca-1089",
    "DOCKER_CERT_MATERIAL": "canary-cert-3435",
    "DOCKER_KEY_MATERIAL": "canary-key-1729",
}
CONFIG_SECRET = "canary-config-1337"
CANARIES = ("canary-", "Y2FuYXJ5LWF1dGg=", "BEGIN PRIVATE KEY")


@dataclass(frozen=True)
class Deployed:
    """A stack that was previewed, deployed and changed in the environment of an operator with secrets."""

    project: Project
    config: Config
    printed: dict[str, str]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain, engine: DockerCli) -> Project:
    env = {**os.environ, **OPERATORS, **OTHER_ENGINE}
    project = Project(tmp_path_factory.mktemp("pulumi"), toolchain, env)
    project.env["PULUMI_CONFIG_PASSPHRASE"] = PASSPHRASE
    return project


@pytest.fixture(scope="module")
def deployed(
    project: Project, engine: DockerCli, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployed]:
    [subnet] = free_subnets(1)
    config = small_stack(tmp_path_factory.mktemp("models"), subnet=subnet)
    config["nodes"][0]["docker"]["endpoint"] = engine.docker_host
    project.write_stack(STACK, config)
    printed = {}
    try:
        printed["preview"] = project.preview(STACK, "--diff").output
        first = project.up(STACK, "--logtostderr", "-v=9")
        assert first.code == 0, first.output[-3000:]
        printed["first up"] = first.output
        config["pools"][0]["log_level"] = "error"
        project.write_stack(STACK, config)
        printed["second preview"] = project.preview(STACK, "--diff").output
        printed["second up"] = project.up(STACK, "--diff").output
        yield Deployed(project, config, printed)
    finally:
        project.destroy(STACK)


def _leaks(texts: dict[str, str]) -> list[tuple[str, str]]:
    assert all(texts.values()), "there is nothing to look into"
    return [(where, canary) for where, text in texts.items() for canary in CANARIES if canary in text]


def test_a_nodes_engine_is_its_own_whatever_the_shell_says(deployed: Deployed, engine: DockerCli) -> None:
    of_envoy = ("envoy", "envoy-publisher", "envoy-acceptance")
    wanted = {
        f"{STACK}.here-{name}"
        for name in ("gpu0", "gpu0-drain", "gpu1", "gpu1-drain", "main-publisher", *of_envoy)
    }
    assert engine.names("container") == wanted
    assert deployed.project.up(STACK, "--refresh", "--expect-no-changes").code == 0


def test_preview_and_up_print_no_secret_in_their_most_verbose_form(deployed: Deployed) -> None:
    assert _leaks(deployed.printed) == []


def test_the_state_its_history_and_the_outputs_hold_no_secret(deployed: Deployed) -> None:
    folder = Path(deployed.project.env["PULUMI_BACKEND_URL"].removeprefix("file://"))
    texts = {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*.json")}
    assert any("history" in name for name in texts)
    texts["export"] = deployed.project.pulumi("stack", "export", "--show-secrets", "--stack", STACK).output
    texts["outputs"] = deployed.project.pulumi(
        "stack", "output", "--json", "--show-secrets", "--stack", STACK
    ).output
    assert _leaks(texts) == []


def test_containers_images_and_networks_hold_no_secret(deployed: Deployed, engine: DockerCli) -> None:
    texts = {name: engine.run("inspect", name) for name in engine.names("container")}
    assert len(texts) == 8
    for name in sorted(texts):
        pid = int(engine.run("inspect", "--format", "{{.State.Pid}}", name))
        if pid:  # a publisher has ended
            texts[f"environment of {name}"] = Path(f"/proc/{pid}/environ").read_text()
        logged = subprocess.run(
            ["docker", "--host", engine.docker_host, "logs", name],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        texts[f"log of {name}"] = logged.stdout + "."  # a server that logs errors alone may log nothing
    for network in engine.names("network"):
        texts[f"network {network}"] = engine.run("network", "inspect", network)
    assert _leaks(texts) == []


def test_a_setting_that_is_encrypted_is_refused_without_showing_it(deployed: Deployed) -> None:
    # Pulumi decrypts what the program is handed, and from there it would go into state in plain text.
    project = deployed.project
    project.write_stack("encrypted", deployed.config)
    project.pulumi(
        "config", "set", "--secret", "--stack", "encrypted", "--path", "pools[0].log_level", CONFIG_SECRET
    )
    refused = project.preview("encrypted")
    assert refused.code != 0
    assert "pools: no setting is a secret" in refused.output
    assert _leaks({"preview": refused.output}) == []


def test_a_key_for_tls_stays_in_its_file(deployed: Deployed, tmp_path: Path) -> None:
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text("-----BEGIN PRIVATE KEY-----\ncanary-tls-9001\n")
    [port] = free_ports(1)
    config = copy.deepcopy(deployed.config)
    config["nodes"][0]["docker"] = {"endpoint": f"tcp://127.0.0.1:{port}", "cert_path": str(tmp_path)}
    project = deployed.project
    project.write_stack("tls", config)
    preview = project.preview("tls", "--diff")
    assert preview.code == 0, preview.output
    failed = project.up("tls")  # nobody listens there; the provider itself is in the state
    assert failed.code != 0
    state = project.pulumi("stack", "export", "--show-secrets", "--stack", "tls").output
    assert "pulumi:providers:docker" in state
    assert _leaks({"preview": preview.output, "up": failed.output, "state": state}) == []


API_KEY = "canary-api-key-5040"


@pytest.fixture(scope="module")
def edge(project: Project, engine: DockerCli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """A stack with TLS and an API key, whose secrets were then changed."""
    [subnet] = free_subnets(1)
    config = small_stack(tmp_path_factory.mktemp("models"), subnet=subnet, gpus=[0])
    config["nodes"][0]["docker"]["endpoint"] = engine.docker_host
    config["front_end"] |= {"tls": {}, "auth": {"api_keys": [{"client": "team-a", "key": "key_a"}]}}
    project.write_stack("edge", config)
    printed = {"refused": project.preview("edge").output}
    _set_secrets(project, "first", API_KEY)
    try:
        printed["preview"] = project.preview("edge", "--diff").output
        up = project.up("edge", "--logtostderr", "-v=9")
        assert up.code == 0, up.output[-3000:]
        printed["up"] = up.output
        yield Deployed(project, config, printed)
    finally:
        project.destroy("edge")


def _set_secrets(project: Project, name: str, api_key: str) -> None:
    cert, key = stand_ins.certificate(name)
    for secret, value in (("tls_certificate", cert), ("tls_private_key", key), ("key_a", api_key)):
        project.pulumi("config", "set", "--secret", "--stack", "edge", secret, given=value)


def _asked(config: Config, name: str, api_key: str) -> int:
    tls = ssl.create_default_context(cadata=stand_ins.certificate(name)[0])
    port = config["front_end"]["rest_port"]
    path = "/v1/models/half_plus_two:predict"
    headers = {"x-api-key": api_key}
    return ask("127.0.0.1", port, "POST", path, body=b'{"instances": [1.0]}', headers=headers, tls=tls).status


def test_secrets_are_asked_for_by_name_where_they_are_missing(edge: Deployed) -> None:
    for secret in ("tls_certificate", "tls_private_key", "key_a"):
        assert f"pulumi config set --secret {secret}" in edge.printed["refused"]


def test_envoy_answers_by_its_certificate_to_whoever_has_the_key(edge: Deployed) -> None:
    assert _asked(edge.config, "first", API_KEY) == 200
    assert _asked(edge.config, "first", "another-key-of-nobody") == 403


def test_secrets_are_in_no_output_state_container_or_log(edge: Deployed, engine: DockerCli) -> None:
    texts = dict(edge.printed)
    # Without --show-secrets: who has the passphrase can decrypt the state, nobody else.
    texts["export"] = edge.project.pulumi("stack", "export", "--stack", "edge").output
    texts["outputs"] = edge.project.pulumi(
        "stack", "output", "--json", "--show-secrets", "--stack", "edge"
    ).output
    names = [name for name in engine.names("container") if name.startswith("edge.")]
    assert len(names) >= 4
    for name in names:
        texts[name] = engine.run("inspect", name)
        texts[f"log of {name}"] = engine.run("logs", name) + "."
    assert _leaks(texts) == []


def test_only_envoys_user_reads_the_files_of_secrets(edge: Deployed, engine: DockerCli) -> None:
    listed = engine.run("exec", "edge.here-envoy", "ls", "-ln", "/config")
    found = {line.split()[-1]: line.split()[:4] for line in listed.splitlines() if len(line.split()) > 8}
    for name in ("tls.crt", "tls.key", "api-keys.yaml"):
        mode, _, user, _ = found[name]
        assert (mode, user) == ("-rw-------", "101"), name


def test_a_new_certificate_and_key_replace_no_server_and_not_envoy(edge: Deployed, engine: DockerCli) -> None:
    def identities() -> dict[str, str]:
        names = ("edge.here-gpu0", "edge.here-envoy")
        return {name: engine.run("inspect", "--format", "{{.Id}}", name) for name in names}

    before = identities()
    renewed = "canary-another-key-5041"
    _set_secrets(edge.project, "second", renewed)
    up = edge.project.up("edge")
    assert up.code == 0, up.output[-3000:]
    assert _leaks({"up": up.output}) == []
    assert "serves the new certificate" in engine.run("logs", "edge.here-envoy-publisher")
    wait_for("the new one", lambda: _asked(edge.config, "second", renewed) == 200)
    wait_for("the old key is out", lambda: _asked(edge.config, "second", API_KEY) == 403)
    assert identities() == before
    assert edge.project.up("edge", "--refresh", "--expect-no-changes").code == 0


def test_files_that_nobody_compares_as_they_are_secret_are_known_by_name(edge: Deployed) -> None:
    exported = edge.project.pulumi("stack", "export", "--show-secrets", "--stack", "edge")
    state = json.loads(exported.output)
    [publisher] = [
        declared(one)
        for one in state["deployment"]["resources"]
        if one.get("inputs", {}).get("name") == "edge.here-envoy-publisher"
    ]
    secret = ("files/api-keys.yaml", "files/tls.crt", "files/tls.key", "then/certificate")
    assert publisher.secret_files == [f"/publish/{name}" for name in secret]
    assert {"/volume/cds.yaml", "/volume/lds.yaml"} <= set(publisher.files)


def test_a_key_is_on_envoys_volume_alone_and_leaves_it_when_nobody_uses_it_any_more(
    edge: Deployed, engine: DockerCli, tmp_path: Path
) -> None:
    def held(container: str) -> list[str]:
        """Secrets in a container's own root, its ended life included."""
        archive = tmp_path / "root.tar"
        engine.run("export", "--output", str(archive), container)
        root = archive.read_bytes().decode("latin-1")
        # One line of a certificate's or key's text tells it from all others.
        lines = [text.splitlines()[1] for name in ("first", "second") for text in stand_ins.certificate(name)]
        return [secret for secret in ("canary-", *lines) if secret in root]

    def in_config() -> set[str]:
        return set(engine.run("exec", "edge.here-envoy", "ls", "/config").split())

    assert set(EDGE_FILES) <= in_config()
    for container in ("envoy", "envoy-publisher", "envoy-acceptance"):
        assert held(f"edge.here-{container}") == [], container
    for key in ("tls", "auth"):
        del edge.config["front_end"][key]
    edge.project.write_stack("edge", edge.config)
    up = edge.project.up("edge")
    assert up.code == 0, up.output[-3000:]
    assert not set(EDGE_FILES) & in_config()
