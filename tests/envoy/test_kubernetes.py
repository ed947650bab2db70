"""Envoy's files on Kubernetes with the real Envoy: endpoints from DNS, files swapped as a kubelet does."""

import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest

from components.envoy_files import bootstrap_file
from components.front_end_plan import FrontEndPlan, ListenPorts
from components.kubernetes_acceptance import settings_text
from components.kubernetes_envoy import dynamic_files
from components.kubernetes_plan import KubernetesPlan, make_kubernetes_plan
from components.kubernetes_settings import KubernetesFrontEnd, KubernetesSettings
from components.server_spec import GRPC_PORT, REST_PORT
from components.settings import STATUS_PORT
from components.stack_file import load_stack_file
from ops.api_keys import api_keys_text
from tests import golden
from tests.envoy import harness, stand_ins
from tests.envoy.ground import ROOT, Ground, envoy_command
from tests.envoy.harness import free_ports, ground_below, wait_for
from tests.kubernetes_stacks import four_gpus, plan
from tests.publishing import Accepted, still_asks
from tests.stacks import Config, changed

pytestmark = pytest.mark.envoy

STACKS = {
    stack: make_kubernetes_plan(loaded, stack=stack).front_end.envoy
    for stack, file in golden.stack_files().items()
    if isinstance(loaded := load_stack_file(file), KubernetesSettings)
}


def files(front_end: FrontEndPlan, ground: Ground) -> dict[str, str]:
    """All files of a plan, for here: the pods' Services are this machine."""
    own = dict([bootstrap_file(front_end)]) | dynamic_files(front_end)
    hosts = {str(endpoint.address) for pool in front_end.pools for endpoint in pool.endpoints}
    for host in sorted(hosts, key=len, reverse=True):
        own = {name: text.replace(f'"{host}"', '"localhost"') for name, text in own.items()}
    return {name: ground.moved(text) for name, text in own.items()}


def swap(ground: Ground, texts: dict[str, str], generation: str) -> None:
    """Put files in place as a kubelet does: in a folder of their own, whose link is renamed."""
    folder = ground.folder / f"..{generation}"
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)
        if not (ground.folder / name).is_symlink():
            (ground.folder / name).symlink_to(Path("..data") / name)
    link = ground.folder / "..data_tmp"
    link.symlink_to(folder.name)
    current = ground.folder / "..data"
    before = ground.folder / current.readlink() if current.exists() else None
    link.rename(current)
    if before:
        shutil.rmtree(before)


@contextmanager
def running(
    front_end: FrontEndPlan, ground: Ground, binary: Path, secrets: Mapping[str, str] | None = None
) -> Iterator[None]:
    """An Envoy on the files of a plan, and of Secrets."""
    swap(ground, {**files(front_end, ground), **(secrets or {})}, "first")
    command = envoy_command(binary, ground.folder / bootstrap_file(front_end)[0])
    with (ground.folder.parent / "envoy.log").open("wb") as log:
        envoy = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_for("Envoy is ready", lambda: ask(ground.admin_port, "/ready") == "LIVE\n")
            yield
            assert envoy.poll() is None
        finally:
            envoy.terminate()
            envoy.wait()


def ask(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        text: str = answer.read().decode()
    return text


def statistics(ground: Ground, wanted: str) -> dict[str, str]:
    lines = ask(ground.admin_port, f"/stats?filter={wanted}").splitlines()
    return dict(line.split(": ", 1) for line in lines)


def secrets_of(front_end: FrontEndPlan) -> dict[str, str]:
    """The files of the Secrets that a stack names, as their volume has them."""
    certificate = zip(("tls.crt", "tls.key"), stand_ins.certificate(), strict=True)
    keys = api_keys_text(["team-a=0123456789abcdef\n"])
    spec = front_end.spec
    assert isinstance(spec, KubernetesFrontEnd)
    return {
        **(dict(certificate) if spec.tls_secret else {}),
        **({"api-keys.yaml": keys} if spec.api_keys_secret else {}),
    }


def with_ports(front_end: FrontEndPlan) -> FrontEndPlan:
    """The same on ports that are free here."""
    rest, grpc_port, metrics = free_ports(3)
    ports = {"rest_port": rest, "grpc_port": grpc_port, "metrics_port": metrics}
    spec = front_end.spec.model_copy(update=ports)
    return replace(front_end, spec=spec, listens=ListenPorts(rest=rest, grpc=grpc_port, metrics=metrics))


@pytest.mark.parametrize("front_end", STACKS.values(), ids=STACKS)
def test_envoy_takes_every_file_of_a_committed_stack(
    front_end: FrontEndPlan, envoy_binary: Path, tmp_path: Path
) -> None:
    ground = ground_below(tmp_path)
    with running(with_ports(front_end), ground, envoy_binary, secrets_of(front_end)):
        refused = statistics(ground, "update_(rejected|failure)$")
        assert {
            name: value for name, value in refused.items() if value != "0" and "membership" not in name
        } == {}
        assert statistics(ground, r"lds\.version_text$")


def test_envoy_finds_the_pods_behind_a_service(envoy_binary: Path, tmp_path: Path) -> None:
    ground = ground_below(tmp_path)
    with running(with_ports(plan(four_gpus()).front_end.envoy), ground, envoy_binary):
        wait_for(
            "the name is resolved",
            lambda: statistics(ground, r"cluster\.rest-main\.membership_total$").popitem()[1] == "1",
        )


@dataclass(frozen=True)
class WithServer(Ground):
    """A place where pods have the ports of a server of this machine."""

    grpc_port: int
    rest_port: int

    def moved(self, text: str) -> str:
        for pods, here in ((GRPC_PORT, self.grpc_port), (REST_PORT, self.rest_port)):
            text = text.replace(f"port_value: {pods}\n", f"port_value: {here}\n")
        return super().moved(text)


@contextmanager
def a_pod(grpc_port: int, rest_port: int) -> Iterator[None]:
    """A server of this machine, on these ports of the loopback."""
    command = [sys.executable, "-m", "tests.envoy.backend", "a-pod", "127.0.0.1"]
    process = subprocess.Popen([*command, str(grpc_port), str(rest_port)], cwd=ROOT)
    try:
        wait_for("it answers", lambda: ask(rest_port, "/v1/models/resnet50") != "")
        yield
    finally:
        process.terminate()
        process.wait()


def test_a_pod_that_only_dns_knows_answers_a_prediction(envoy_binary: Path, tmp_path: Path) -> None:
    front_end = with_ports(plan(four_gpus()).front_end.envoy)
    place = ground_below(tmp_path)
    ground = WithServer(place.folder, place.admin_port, place.status_port, *free_ports(2))

    def predicted() -> harness.Answer:
        path = "/v1/models/resnet50:predict"
        return harness.ask("127.0.0.1", front_end.spec.rest_port, "POST", path, body=b"{}")

    with running(front_end, ground, envoy_binary):
        wait_for("nobody is behind it", lambda: predicted().status == 503)
        with a_pod(ground.grpc_port, ground.rest_port):
            wait_for("Envoy has found it", lambda: predicted().status == 200)
            answer = predicted()
            assert answer.json()["path"] == "/v1/models/resnet50:predict"
            assert answer.served_by == "test-main", "the pods of a Service have one name"
            with grpc.insecure_channel(f"127.0.0.1:{front_end.spec.grpc_port}") as channel:
                said, _ = harness.call_grpc(channel)
            assert b'"served_by": "a-pod"' in said


def stack(ports: dict[str, int], **front_end: object) -> KubernetesPlan:
    config: Config = changed(four_gpus(), "front_end", {**ports, **front_end})
    return plan(config)


def asks(stack: KubernetesPlan, ground: Ground, *, wait_s: int = 20) -> list[str]:
    """What the Job is told of Envoy, for here."""
    _, *lines = settings_text(stack).splitlines()
    of_envoy = lines[: next(n for n, line in enumerate(lines) if line.startswith("pool "))]
    here = [line.replace(f" {STATUS_PORT}", f" {ground.status_port}") for line in of_envoy]
    return [f"wait {wait_s}", *here]


def test_a_key_of_the_secret_opens_and_one_that_is_swapped_in_does_too(
    envoy_binary: Path, tmp_path: Path
) -> None:
    ports = dict(zip(("rest_port", "grpc_port", "metrics_port"), free_ports(3), strict=True))
    front_end = stack(ports, api_keys_secret="keys", tls_in_front=True).front_end.envoy
    ground = ground_below(tmp_path)
    own = files(front_end, ground)
    old, new = "0123456789abcdef", 'fedcba9876543210 "\\'

    def status(key: str | None) -> int:
        headers = {"x-api-key": key} if key else {}
        return harness.ask(
            "127.0.0.1",
            ports["rest_port"],
            "POST",
            "/v1/models/resnet50:predict",
            body=b"{}",
            headers=headers,
        ).status

    with running(front_end, ground, envoy_binary, {"api-keys.yaml": api_keys_text([f"team-a={old}\n"])}):
        # No server is behind it: who may ask is told so.
        wait_for("the key is known", lambda: status(old) == 503)
        assert [status(None), status(new)] == [403, 403]
        swap(ground, {**own, "api-keys.yaml": api_keys_text([f"team-a={new}\n"])}, "second")
        wait_for("the new key is known", lambda: status(new) == 503)
        assert status(old) == 403


@dataclass(frozen=True)
class OfAnother(Ground):
    """The place of a second pod: its listeners are on an address of its own, with the same ports."""

    def moved(self, text: str) -> str:
        return super().moved(text.replace('"0.0.0.0"', '"127.0.0.2"'))


def test_the_job_waits_until_every_envoy_has_taken_the_files_that_the_kubelet_swaps(
    envoy_binary: Path, tmp_path: Path
) -> None:
    ports = dict(zip(("rest_port", "grpc_port", "metrics_port"), free_ports(3), strict=True))
    before, after = stack(ports), stack(ports, request_ids={"in_answers": False})
    (tmp_path / "one").mkdir()
    one = ground_below(tmp_path / "one")
    (tmp_path / "other" / "config").mkdir(parents=True)
    other = OfAnother(tmp_path / "other" / "config", free_ports(1)[0], one.status_port)
    job = Accepted(tmp_path)
    job.pods(before.front_end.metrics_host, "127.0.0.1", "127.0.0.2")
    with (
        running(before.front_end.envoy, one, envoy_binary),
        running(before.front_end.envoy, other, envoy_binary),
    ):
        code, said = job.run(asks(before, one))
        assert (code, said.splitlines()[-1]) == (0, "all have it")
        with job.start(asks(after, one)) as process:
            swap(one, files(after.front_end.envoy, one), "second")
            assert still_asks(process), "the other pod has not"
            swap(other, files(after.front_end.envoy, other), "second")
            assert process.wait(20) == 0
        for ground in (one, other):
            assert set(statistics(ground, r"update_rejected$").values()) == {"0"}


def test_the_job_fails_with_the_reason_once_an_envoy_refuses_a_file(
    envoy_binary: Path, tmp_path: Path
) -> None:
    ports = dict(zip(("rest_port", "grpc_port", "metrics_port"), free_ports(3), strict=True))
    before, after = stack(ports), stack(ports, request_ids={"in_answers": False})
    ground = ground_below(tmp_path)
    job = Accepted(tmp_path)
    job.pods(before.front_end.metrics_host, "127.0.0.1")
    bad = files(after.front_end.envoy, ground)
    bad["lds.yaml"] = (
        bad["lds.yaml"].replace("connect_timeout", "no_such_field").replace("stat_prefix", "no_such_field")
    )
    with running(before.front_end.envoy, ground, envoy_binary):
        with job.start(asks(after, ground, wait_s=60)) as process:
            assert still_asks(process)
            swap(ground, bad, "second")
            said = process.communicate(timeout=20)[0]
        assert process.returncode == 1
        assert "FAILED: Envoy at 127.0.0.1 refused listener_manager.lds and serves what it served" in said
        # Whoever looks only afterwards waits, and is told all the same.
        code, said = job.run(asks(after, ground, wait_s=2))
        assert code == 1
        assert "has not taken listener_manager.lds, of which it refused 1 before" in said
        swap(ground, files(after.front_end.envoy, ground), "third")
        assert job.run(asks(after, ground))[0] == 0
