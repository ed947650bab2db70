"""Previews with the real CLI that the policy pack refuses, or lets pass."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
import yaml
from pack.registry import all_rules

from components.stack_file import load_stack_file, own_values
from tests import golden
from tests.preview.raw_program import BATCHING, GPU, RAW, server, with_pack
from tests.pulumi_project import Project, Run
from toolchain.python_env import ensure_policy_venv

pytestmark = pytest.mark.preview

SECRETS = ("tls_certificate", "tls_private_key")


@pytest.fixture(scope="session", autouse=True)
def _pack_environment() -> None:
    ensure_policy_venv()


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


def without(container: Mapping[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in container.items() if key != name}


def test_a_good_raw_program_passes(raw: Raw) -> None:
    passed = raw({"a": server(0), "b": server(1)})
    assert passed.code == 0, passed.output
    assert "mandatory" not in passed.output
    assert "advisory" not in passed.output


def test_two_servers_on_one_gpu_are_refused_with_name_value_and_fix(raw: Raw) -> None:
    refused = raw({"a": server(0), "b": server(0)})
    assert refused.code != 0
    # Whichever Pulumi shows the pack first has it.
    where = r"\[mandatory\] \[severity: critical\]  one-model-per-gpu  \(docker:index:Container: [ab]\)"
    assert re.search(where, refused.output)
    assert f"deviceRequests[0].deviceIds: {GPU.format(0)}: GPU {GPU.format(0)} is owned by" in refused.output
    assert "Fix: give each server a GPU" in refused.output
    assert "Traceback" not in refused.output


def test_a_server_that_takes_all_memory_is_refused_with_name_value_and_fix(raw: Raw) -> None:
    refused = raw({"greedy": {**server(0), "envs": ["TF_GPU_MEMORY_FRACTION=0.5"]}})
    assert refused.code != 0
    assert "gpu-memory  (docker:index:Container: greedy)" in refused.output
    assert "variable TF_GPU_MEMORY_FRACTION: no TensorFlow Serving reads it" in refused.output
    assert "TF_FORCE_GPU_ALLOW_GROWTH: unset: by default it takes all memory" in refused.output
    assert "Fix: set the variable TF_FORCE_GPU_ALLOW_GROWTH=true" in refused.output


def test_a_server_that_publishes_a_port_is_refused_with_name_value_and_fix(raw: Raw) -> None:
    refused = raw({"open": {**server(0), "ports": [{"internal": 8501, "external": 8501}]}})
    assert refused.code != 0
    assert "only-the-front-end-publishes  (docker:index:Container: open)" in refused.output
    assert "8501 -> 8501: only the front end publishes ports" in refused.output
    assert "Fix: remove the port: clients use the front end" in refused.output


def test_memory_without_bounds_is_refused_with_name_value_and_fix(raw: Raw) -> None:
    node = {"label": "tf-serving.node-memory-mib", "value": "196608"}
    refused = raw(
        {
            "unbounded": without(server(0), "memory"),
            "swapping": {**server(1), "memory_swap": -1},
            "large": {**server(2), "memory": 196608, "memory_swap": 196608, "labels": [node]},
        }
    )
    assert refused.code != 0
    assert "unbounded" in refused.output
    assert "memory: unset: it may take all memory of its node" in refused.output
    assert "memorySwap: -1: is not memory (98304)" in refused.output
    assert "Fix: set memorySwap to 98304, which means no swap" in refused.output
    assert "= 294912 MiB on a node of 196608, of which 1024 are kept for itself" in refused.output
    assert "Fix: lower memory, or move a server to another node" in refused.output


def test_a_server_that_nobody_asks_and_that_stays_down_is_refused_with_name_value_and_fix(raw: Raw) -> None:
    status = {"tests": ["CMD", "ask", "/v1/models/resnet50"], "start_period": "10m0s"}
    refused = raw(
        {
            "status": {**server(0), "healthcheck": status},
            "hasty": {**server(1), "wait_timeout": 60},
            "down": {**without(server(2), "restart"), "init": False},
        }
    )
    assert refused.code != 0
    assert "/v1/models/resnet50: does not tell whether resnet50 is loaded" in refused.output
    assert "Fix: /v1/models/<model>/metadata answers 200 only while a version is loaded" in refused.output
    assert "waitTimeout: 60 s: its load time is 600 s" in refused.output
    assert "Fix: set waitTimeout to 600 or more" in refused.output
    assert "restart: no: it stays down after a crash" in refused.output
    assert "init: unset: as process 1 the server does not get SIGTERM" in refused.output


def test_servers_that_are_replaced_at_once_are_refused_with_name_value_and_fix(raw: Raw) -> None:
    at_once = {"depends_on": [], "delete_before_replace": False}
    alone = {**server(2), "command": [*server(2)["command"], "--model_name=bert"], "labels": []}
    refused = raw({"first": server(0), "second": {**server(1), "options": at_once}, "alone": alone})
    assert refused.code != 0
    assert re.search(r"second-\w+: dependsOn: first-\w+ is not among what it waits for", refused.output)
    assert re.search(r"Fix: depends_on=\[first-\w+\]: servers of pool main form one chain", refused.output)
    assert re.search(r"second-\w+: deleteBeforeReplace: unset", refused.output)
    assert "instances: 1 of bert: while it is replaced, nobody serves bert" in refused.output


def test_batches_that_cannot_be_are_refused_with_name_value_and_fix(raw: Raw) -> None:
    sizes = BATCHING + "allowed_batch_sizes: [8, 16]"
    command = [word for word in server(1)["command"] if "batching" not in word]
    refused = raw(
        {
            "sizes": {**server(0), "uploads": [{"file": "/batching.config", "content": sizes}]},
            "off": {**server(1), "command": command},
        }
    )
    assert refused.code != 0
    assert "/batching.config: allowed_batch_sizes: [8, 16]: the last size must equal" in refused.output
    assert "Fix: append 32, or make 16 the max_batch_size" in refused.output
    assert "--enable_batching: unset: each request runs alone" in refused.output


def test_cpus_of_another_server_or_socket_are_refused_with_name_value_and_fix(raw: Raw) -> None:
    facts = {"node-gpus": f"0={GPU.format(0)};1={GPU.format(1)}", "node-numa": "0=0;1=1"}
    facts["node-cpus"] = "0=0-15;1=16-31"
    labels = [{"label": f"tf-serving.{name}", "value": value} for name, value in facts.items()]
    told = {**server(0), "labels": [*server(0)["labels"], *labels]}
    quota = {**without(server(2), "cpu_set"), "cpus": "16"}
    refused = raw({"told": told, "rival": {**server(1), "cpu_set": "8-23"}, "quota": quota})
    assert refused.code != 0
    # Whichever Pulumi registers first has them.
    told_first = r"rival-\w+: cpuSet: 8-23: CPUs 8-15 are those of told-\w+"
    rival_first = r"told-\w+: cpuSet: 0-15: CPUs 8-15 are those of rival-\w+"
    assert re.search(f"{told_first}|{rival_first}", refused.output)
    assert "Fix: give each server CPUs of its own" in refused.output
    assert "cpuSet: 8-23: CPUs 8-15 are not on NUMA node 1 of its GPU" in refused.output
    assert "cpus: 16: is no set of CPUs, and without --tensorflow_intra_op_parallelism" in refused.output


def test_two_violations_of_one_stack_are_both_reported(raw: Raw) -> None:
    refused = raw(
        {
            "all": {**without(server(0), "device_requests"), "gpus": "all"},
            "open": {**server(1), "privileged": True},
        }
    )
    assert refused.code != 0
    assert "gpus: all: takes all GPUs of its node" in refused.output
    assert "privileged: true: a privileged container sees all GPUs" in refused.output


def test_values_that_are_not_known_in_preview_are_refused_by_resource(project: Project) -> None:
    program = (
        RAW
        + f"""
first = docker.Container('first', image='busybox:1', opts=opts)
good = {server(0)!r}
docker.Container('gpus', **{{**good, 'device_requests': None, 'gpus': first.id}}, opts=opts)
docker.Container('image', **{{**good, 'image': first.id}}, opts=opts)
docker.Container('memory', **{{**good, 'envs': first.id.apply(lambda made: [made])}}, opts=opts)
"""
    )
    (project.folder / "__main__.py").write_text(program)
    project.write_stack("raw", {"containers": "{}"})
    refused = project.preview("raw", *with_pack("prod"))
    assert refused.code != 0
    for rule, name, said in (
        ("one-model-per-gpu", "gpus", r"GPU of gpus-\w+ is not known in preview: gpus"),
        ("pinned-images", "image", r"Image of image-\w+ is not known in preview: image"),
        ("gpu-memory", "memory", r"GPU memory of memory-\w+ is not known in preview: envs"),
    ):
        assert f"{rule}  (docker:index:Container: {name})" in refused.output, rule
        assert re.search(said, refused.output)
    assert "can't run policy" not in refused.output


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


def test_models_that_do_not_fit_the_gpu_that_they_share_are_refused_with_name_value_and_fix(raw: Raw) -> None:
    share = "--per_process_gpu_memory_fraction=0.6"
    sharers = {
        name: with_label({**server(0), "command": [*server(0)["command"], share]}, "sharing", "true")
        for name in ("a", "b")
    }
    refused = raw(sharers)
    assert refused.code != 0
    assert re.search(r"gpu-memory-shared  \(docker:index:Container: [ab]\)", refused.output)
    assert "0.6" in refused.output.partition("gpu-memory-shared")[2]
    assert "Fix: " in refused.output.partition("gpu-memory-shared")[2]


def test_keys_without_tls_are_refused_with_name_and_fix(raw: Raw) -> None:
    listener = {"name": "rest", "filter_chains": [{"http_filters": [{"name": "jwt_authn"}]}]}
    upload = {"file": "/listener.yaml", "content": json.dumps(listener)}
    refused = raw({"asks": {"image": "envoyproxy/envoy:v1.40.0", "uploads": [upload]}})
    assert refused.code != 0
    assert "credentials-need-tls  (docker:index:Container: asks)" in refused.output
    assert "/listener.yaml" in refused.output.partition("credentials-need-tls")[2]
    assert "Fix: " in refused.output.partition("credentials-need-tls")[2]


def test_every_rule_of_the_pack_speaks_up_in_a_first_deployment(project: Project) -> None:
    """One stack that breaks all of them: none is lost among the others."""
    node = with_label(with_label(server(0), "node-driver", "440.33"), "node-memory-mib", "1024")
    listener = {"name": "rest", "filter_chains": [{"http_filters": [{"name": "jwt_authn"}]}]}
    containers = {
        # On the GPU and the CPUs of `worst`, with batching off, and with nothing that makes room for it.
        "rival": {
            **node,
            "command": server(0)["command"][:4],
            "options": {"depends_on": [], "delete_before_replace": False},
        },
        "worst": {
            **without(server(0), "restart"),
            "image": "tensorflow/serving:latest-gpu",
            "command": [*server(0)["command"], "--enable_batchng=true"],
            "envs": ["DB_PASSWORD=hunter2"],
            "memory_swap": -1,
            "ports": [{"internal": 8501, "external": 8501}],
            "capabilities": {"adds": ["CAP_SYS_ADMIN"]},
            "labels": [],
        },
        "asks": {
            "image": "envoyproxy/envoy:v1.40.0",
            "uploads": [{"file": "/listener.yaml", "content": json.dumps(listener)}],
        },
    }
    twin = (
        "twin = docker.Provider('twin', host='tcp://gpu-01.example.com:2376')\n"
        "docker.Container('second', image='busybox:1.36.1', opts=pulumi.ResourceOptions(provider=twin))\n"
    )
    (project.folder / "__main__.py").write_text(RAW + twin)
    project.write_stack("raw", {"containers": json.dumps(containers)})
    refused = project.preview("raw", *with_pack("prod"))
    assert refused.code != 0
    silent = [
        rule.name
        for rule in all_rules()
        if f"[{rule.levels['prod']}] [severity: {rule.severity}]  {rule.name}  (" not in refused.output
    ]
    assert silent == []
    assert "Traceback" not in refused.output


def test_a_digest_is_a_must_in_prod_once_the_lock_file_has_it(raw: Raw, project: Project) -> None:
    tag = "tensorflow/serving:2.14.1-gpu"
    alone = with_label(server(0), "single", "true")
    before = raw({"a": {**alone, "image": tag}})
    assert before.code == 0, before.output
    assert "[advisory] [severity: medium]  pinned-images-digest" in before.output
    assert f"image: {tag}: a tag can be moved, a digest cannot" in before.output
    assert "Fix: run `make pin`" in before.output
    lock(project, [tag])
    refused = project.preview("raw", *with_pack("prod"))
    assert refused.code != 0
    assert f"image: {tag}: in prod an image is named by its digest" in refused.output
    assert f"Fix: write {tag}@sha256:{'0' * 64}" in refused.output
    passed = raw({"a": alone})
    assert passed.code == 0, passed.output


def with_label(container: Mapping[str, object], name: str, value: str) -> dict[str, object]:
    labels = container["labels"]
    assert isinstance(labels, list)
    return {**container, "labels": [*labels, {"label": f"tf-serving.{name}", "value": value}]}


def lock(project: Project, images: Iterable[str]) -> None:
    """Write what `make pin` would, with digests of this test's own."""
    lines = "".join(f"  {image}: sha256:{'0' * 64}\n" for image in images)
    (project.folder / "images.lock.yaml").write_text(f"images:\n{lines}")


@pytest.mark.parametrize(("stack", "file"), golden.on_engines().items())
def test_a_committed_stack_passes_its_own_level(project: Project, stack: str, file: Path) -> None:
    config = own_values(yaml.safe_load(file.read_text())["config"])
    if load_stack_file(file).environment == "prod":
        lock(project, yaml.safe_load(file.read_text())["config"]["tf-serving:images"].values())
    project.write_stack(stack, config)
    for secret in SECRETS if "tls: {}" in file.read_text() else ():
        project.pulumi("config", "set", "--stack", stack, "--secret", secret, "\n-----BEGIN canary")
    planned = project.preview(stack, *with_pack(load_stack_file(file).environment))
    assert planned.code == 0, planned.output
    assert "mandatory" not in planned.output, planned.output
    assert "advisory" not in planned.output, planned.output
    assert "can't run policy" not in planned.output
