"""Previews with the real CLI that the policy pack refuses, or lets pass."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
import yaml

from components.stack_file import load_stack_file, own_values
from tests import golden
from tests.pulumi_project import CHECKOUT, Project, Run
from toolchain.python_env import ensure_policy_venv
from toolchain.tools import Toolchain

pytestmark = pytest.mark.preview

PACK = CHECKOUT / "policies"
GPU = "GPU-11111111-aaaa-4aaa-8aaa-00000000000{}"
RAW = """
import json, pulumi, pulumi_docker as docker
provider = docker.Provider("p", host="ssh://deploy@gpu-01.example.com")
opts = pulumi.ResourceOptions(provider=provider)
for name, inputs in json.loads(pulumi.Config().require("containers")).items():
    docker.Container(name, opts=opts, **inputs)
"""


@pytest.fixture(scope="session", autouse=True)
def _pack_environment() -> None:
    ensure_policy_venv()


@pytest.fixture
def project(tmp_path: Path, toolchain: Toolchain) -> Project:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "DOCKER_HOST": "unix:///nonexistent/docker.sock",
    }
    return Project(tmp_path, toolchain, env)


Raw = Callable[[Mapping[str, object]], Run]


@pytest.fixture
def raw(project: Project) -> Raw:
    """Preview a program that uses none of our components, with these containers."""
    (project.folder / "__main__.py").write_text(RAW)
    (project.folder / "components").unlink()

    def preview(containers: Mapping[str, object]) -> Run:
        project.write_stack("raw", {"containers": json.dumps(containers)})
        return project.preview("raw", *with_pack("prod"))

    return preview


def with_pack(environment: str) -> list[str]:
    return [f"--policy-pack={PACK}", f"--policy-pack-config={PACK}/config/{environment}.json"]


def server(gpu: int) -> dict[str, object]:
    """A container that keeps every rule of this step, as another program might write it."""
    return {
        "image": f"tensorflow/serving:2.14.1-gpu@sha256:{'0' * 64}",
        "command": ["--model_name=resnet50", "--model_base_path=/models/resnet50", "--enable_profiler=false"],
        "envs": ["TF_FORCE_GPU_ALLOW_GROWTH=true"],
        "device_requests": [{"driver": "nvidia", "device_ids": [GPU.format(gpu)], "capabilities": ["gpu"]}],
        "security_opts": ["no-new-privileges:true"],
        "labels": [
            {"label": "tf-serving.stack", "value": "raw"},
            {"label": "tf-serving.owner", "value": "ml-platform"},
            {"label": "tf-serving.pool", "value": "main"},
            {"label": "tf-serving.slot", "value": f"gpu{gpu}"},
            {"label": "tf-serving.models", "value": "resnet50"},
        ],
    }


def test_a_good_raw_program_passes(raw: Raw) -> None:
    passed = raw({"a": server(0), "b": server(1)})
    assert passed.code == 0, passed.output
    assert "mandatory" not in passed.output
    assert "advisory" not in passed.output


def test_two_servers_on_one_gpu_are_refused_with_name_value_and_fix(raw: Raw) -> None:
    refused = raw({"a": server(0), "b": server(0)})
    assert refused.code != 0
    assert "[mandatory] [severity: critical]  one-model-per-gpu" in refused.output
    assert f"deviceRequests[0].deviceIds: {GPU.format(0)}: GPU {GPU.format(0)} is owned by" in refused.output
    assert "Fix: give each server a GPU" in refused.output
    assert "Traceback" not in refused.output


def test_a_server_that_takes_all_memory_is_refused_with_name_value_and_fix(raw: Raw) -> None:
    refused = raw({"greedy": {**server(0), "envs": ["TF_GPU_MEMORY_FRACTION=0.5"]}})
    assert refused.code != 0
    assert "variable TF_GPU_MEMORY_FRACTION: no TensorFlow Serving reads it" in refused.output
    assert "TF_FORCE_GPU_ALLOW_GROWTH: unset: by default it takes all memory" in refused.output
    assert "Fix: set the variable TF_FORCE_GPU_ALLOW_GROWTH=true" in refused.output


def test_a_server_that_publishes_a_port_is_refused_with_name_value_and_fix(raw: Raw) -> None:
    refused = raw({"open": {**server(0), "ports": [{"internal": 8501, "external": 8501}]}})
    assert refused.code != 0
    assert "8501 -> 8501: only the front end publishes ports" in refused.output
    assert "Fix: remove the port: clients use the front end" in refused.output


def test_two_violations_of_one_stack_are_both_reported(raw: Raw) -> None:
    pinned_otherwise = {name: value for name, value in server(0).items() if name != "device_requests"}
    refused = raw({"all": {**pinned_otherwise, "gpus": "all"}, "open": {**server(1), "privileged": True}})
    assert refused.code != 0
    assert "gpus: all: takes all GPUs of its node" in refused.output
    assert "privileged: true: a privileged container sees all GPUs" in refused.output


def test_a_value_that_is_not_known_in_preview_is_refused_by_resource(project: Project) -> None:
    program = RAW + "\nfirst = docker.Container('first', image='busybox:1', opts=opts)\n"
    program += "docker.Container('later', image='tensorflow/serving:2.14.1-gpu', gpus=first.id, opts=opts)\n"
    (project.folder / "__main__.py").write_text(program)
    project.write_stack("raw", {"containers": "{}"})
    refused = project.preview("raw", *with_pack("prod"))
    assert refused.code != 0
    assert "is not known in preview: gpus" in refused.output
    assert "GPU of later" in refused.output


def test_what_a_reviewer_would_catch_is_refused_with_name_value_and_fix(raw: Raw) -> None:
    good = server(0)
    refused = raw(
        {
            "moving": {**good, "image": "tensorflow/serving:latest-gpu"},
            "typo": {**good, "command": ["--enable_batchng=true", "--enable_profiler=false"]},
            "mighty": {**good, "capabilities": {"adds": ["CAP_SYS_ADMIN"]}},
            "leaky": {**good, "envs": ["TF_FORCE_GPU_ALLOW_GROWTH=true", "DB_PASSWORD=hunter2"]},
            "nobodys": {**good, "labels": []},
        }
    )
    assert refused.code != 0
    for rule, name, value, fix in (
        ("pinned-images", "moving", "image: tensorflow/serving:latest-gpu", "name an exact version"),
        ("server-flags", "typo", "--enable_batchng: no version of the server", "did you mean --enable_batch"),
        ("least-privilege", "mighty", "capabilities added: CAP_SYS_ADMIN", "drop it, or allow it"),
        ("no-secrets-in-the-open", "leaky", "variable DB_PASSWORD: (hidden)", "keep it in a file"),
        ("required-labels", "nobodys", "label tf-serving.owner: unset", "set tf-serving.owner in labels"),
    ):
        assert f"{rule}  (docker:index:Container: {name})" in refused.output, rule
        assert value in refused.output
        assert f"Fix: {fix}" in refused.output
    assert "hunter2" not in refused.output.partition("Policies:")[2]
    assert "Traceback" not in refused.output


def test_an_image_that_the_driver_cannot_run_is_refused_with_name_value_and_fix(raw: Raw) -> None:
    refused = raw({"old": with_label(server(0), "node-driver", "440.33")})
    assert refused.code != 0
    assert "image-driver-compat  (docker:index:Container: old)" in refused.output
    assert "its CUDA 11.8 needs driver 450.80.02, tf-serving.node-driver is 440.33" in refused.output
    assert "Fix: update the driver to 450.80.02 or newer" in refused.output


def test_a_gpu_on_the_default_provider_and_a_second_provider_are_refused(project: Project) -> None:
    program = (
        RAW
        + f"""
twin = docker.Provider("twin", host="tcp://gpu-01.example.com:2376", key_material="key", cert_material="cert")
docker.Container("a", **{server(0)!r}, opts=opts)
docker.Container("b", **{server(1)!r}, opts=pulumi.ResourceOptions(provider=twin))
docker.Container("c", **{server(2)!r})
"""
    )
    (project.folder / "__main__.py").write_text(program)
    settings = yaml.safe_load((project.folder / "Pulumi.yaml").read_text())
    del settings["config"]  # where a default provider is disabled, Pulumi itself refuses
    (project.folder / "Pulumi.yaml").write_text(yaml.safe_dump(settings))
    project.write_stack("raw", {"containers": "{}"})
    refused = project.preview("raw", *with_pack("prod"))
    assert refused.code != 0
    assert "explicit-provider  (docker:index:Container: c)" in refused.output
    assert "provider: default: which engine that is depends on the shell" in refused.output
    assert "explicit-provider  (pulumi:providers:docker: twin)" in refused.output
    assert "host: tcp://gpu-01.example.com:2376: caMaterial and certPath are unset" in refused.output
    # Pulumi shows the pack a stack in no fixed order: either may be the second.
    assert "explicit-provider-per-node  (docker:index:Container: " in refused.output
    assert "machine gpu-01.example.com is also reached by " in refused.output
    assert "Fix: use one provider for all that is on a machine" in refused.output


def test_a_digest_is_a_must_in_prod_once_the_lock_file_has_it(raw: Raw, project: Project) -> None:
    tag = "tensorflow/serving:2.14.1-gpu"
    before = raw({"a": {**server(0), "image": tag}})
    assert before.code == 0, before.output
    assert "[advisory] [severity: medium]  pinned-images-digest" in before.output
    assert f"image: {tag}: a tag can be moved, a digest cannot" in before.output
    assert "Fix: run `make pin`" in before.output
    lock(project, [tag])
    refused = project.preview("raw", *with_pack("prod"))
    assert refused.code != 0
    assert f"image: {tag}: in prod an image is named by its digest" in refused.output
    assert f"Fix: write {tag}@sha256:{'0' * 64}" in refused.output
    passed = raw({"a": server(0)})
    assert passed.code == 0, passed.output


def with_label(container: Mapping[str, object], name: str, value: str) -> dict[str, object]:
    labels = container["labels"]
    assert isinstance(labels, list)
    return {**container, "labels": [*labels, {"label": f"tf-serving.{name}", "value": value}]}


def lock(project: Project, images: Iterable[str]) -> None:
    """Write what `make pin` would, with digests of this test's own."""
    lines = "".join(f"  {image}: sha256:{'0' * 64}\n" for image in images)
    (project.folder / "images.lock.yaml").write_text(f"images:\n{lines}")


@pytest.mark.parametrize(("stack", "file"), golden.stack_files().items())
def test_a_committed_stack_passes_its_own_level(project: Project, stack: str, file: Path) -> None:
    config = own_values(yaml.safe_load(file.read_text())["config"])
    if load_stack_file(file).environment == "prod":
        lock(project, yaml.safe_load(file.read_text())["config"]["tf-serving:images"].values())
    project.write_stack(stack, config)
    for key in load_stack_file(file).front_end.secrets.values():
        made_up = "of this test\n-----BEGIN PRIVATE KEY-----\n"
        project.pulumi("config", "set", "--secret", key, made_up, "--stack", stack)
    planned = project.preview(stack, *with_pack(load_stack_file(file).environment))
    assert planned.code == 0, planned.output
    assert "mandatory" not in planned.output, planned.output
    assert "advisory" not in planned.output, planned.output
    assert "can't run policy" not in planned.output


def test_plain_pulumi_meets_the_pack_where_the_environment_names_it_from_any_folder(
    project: Project, tmp_path: Path
) -> None:
    (project.folder / "__main__.py").write_text(RAW)
    project.write_stack("raw", {"containers": json.dumps({"a": server(0), "b": server(0)})})
    project.env |= {
        "PULUMI_OPTION_POLICY_PACK": str(PACK),
        "PULUMI_OPTION_POLICY_PACK_CONFIG": f"{PACK}/config/prod.json",
    }
    arguments = ("preview", "--stack", "raw", "--cwd", str(project.folder))
    there = project.pulumi(*arguments, check=False, cwd=tmp_path)
    assert there.code != 0
    assert "is owned by" in there.output
    # The configuration is the one that is named: an advisory level lets it pass, and still says so.
    lenient = tmp_path / "lenient.json"
    lenient.write_text(json.dumps({"all": "advisory"}))
    project.env["PULUMI_OPTION_POLICY_PACK_CONFIG"] = str(lenient)
    said = project.preview("raw")
    assert said.code == 0, said.output
    assert "is owned by" in said.output
