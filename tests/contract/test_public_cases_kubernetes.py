"""What went wrong for people on Kubernetes, as public reports tell it, put to this program."""

from collections.abc import Callable
from typing import Any

import pytest

from components.kubernetes_manifests import objects
from tests.kubernetes_stacks import four_gpus, plan, rendered_to
from tests.policies.good import deployment
from tests.policies.judge import messages
from tests.stacks import Config, changed, problems, refusal

Json = dict[str, Any]
Case = Callable[[], None]
CASES: dict[str, Case] = {}
POOL, NODES = "pools[0].nodes", "node_pools[0]"


def case(number: str) -> Callable[[Case], Case]:
    def keep(check: Case) -> Case:
        assert number not in CASES
        CASES[number] = check
        return check

    return keep


@pytest.mark.parametrize("number", CASES)
def test_what_went_wrong_for_others_on_kubernetes_does_not_here(number: str) -> None:
    CASES[number]()


def told(config: Config) -> str:
    return "\n".join(refusal(config))


def made(config: Config) -> dict[str, Json]:
    return {each.key: each.manifest for each in objects(plan(config))}


def pod(manifest: Json) -> Json:
    spec: Json = manifest["spec"]["template"]["spec"]
    return spec


def server(config: Config) -> Json:
    (only,) = pod(made(config)["main"])["containers"]
    return dict(only)


@case("K1")
def half_a_gpu_is_refused_before_the_api_server_does() -> None:
    assert "0.5: Kubernetes hands out whole GPUs" in told(changed(four_gpus(), f"{POOL}.gpus", 0.5))
    part = changed(four_gpus(), f"{NODES}.gpu_resource", "nvidia.com/mig-1g.10gb")
    assert problems(part) == ()
    assert server(part)["resources"]["limits"]["nvidia.com/mig-1g.10gb"] == "1"
    assert "no such profile" in told(changed(part, f"{NODES}.gpu_resource", "nvidia.com/mig-1g.5gb"))
    shared = changed(
        four_gpus() | {"environment": "staging"}, f"{NODES}.gpu_resource", "nvidia.com/gpu.shared"
    )
    assert problems(changed(shared, "pools[0].gpu_memory", {"fraction": 0.2})) == ()


@case("K2")
def gpus_are_in_limits_and_a_request_that_differs_is_a_violation() -> None:
    assert "requests" not in server(four_gpus())["resources"]
    resources = "spec.template.spec.containers[0].resources"
    memory = {"memory": "65536Mi"}
    for requests, limits in (("1", None), ("1", "3")):
        asked = {
            "requests": {"nvidia.com/gpu": requests},
            "limits": memory | ({"nvidia.com/gpu": limits} if limits else {}),
        }
        said = "\n".join(messages("one-model-per-gpu", deployment().changed(resources, asked)))
        assert "differ from limits, which GPUs do not allow" in said


@case("K4")
def servers_tolerate_the_taint_and_envoy_is_not_sent_to_gpus() -> None:
    every = made(four_gpus())
    tolerated = pod(every["main"])["tolerations"]
    assert tolerated == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    for other in ("envoy", "acceptance"):
        assert "nodeSelector" not in pod(every[other])
        assert "tolerations" not in pod(every[other])


@case("K5")
def a_runtime_class_is_on_servers_alone_and_else_absent() -> None:
    said = made(changed(four_gpus(), f"{NODES}.runtime_class", "nvidia"))
    classes = {
        key: pod(said[key]).get("runtimeClassName", "absent") for key in ("main", "envoy", "acceptance")
    }
    assert classes == {"main": "nvidia", "envoy": "absent", "acceptance": "absent"}
    assert "runtimeClassName" not in pod(made(four_gpus())["main"])


@case("K6")
def nobody_gets_gpus_by_a_variable() -> None:
    unpacked = made(
        changed(four_gpus(), "pools[0].model_volume", {"image": "registry.example.com/models:1.0.0"})
    )
    (unpacker,) = pod(unpacked["main"])["initContainers"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in unpacker["env"]
    assert "nvidia.com/gpu" not in unpacker["resources"]["limits"]
    names = {variable["name"] for variable in server(four_gpus())["env"]}
    assert "NVIDIA_VISIBLE_DEVICES" not in names
    assert "accepted: a whole number of GPUs, 1 to 16" in told(changed(four_gpus(), f"{POOL}.gpus", 0))


@case("K7")
def an_autoscaler_comes_with_the_rule_for_its_metric_and_keeps_within_the_gpus() -> None:
    scaled = {"pool": "a100", "cpus": 8, "autoscale": {"least": 2, "most": 4, "gpu_percent": 80}}
    every = made(changed(four_gpus(), POOL, scaled))
    assert every["main-autoscaler"]["apiVersion"] == "autoscaling/v2"
    (metric,) = every["main-autoscaler"]["spec"]["metrics"]
    assert metric["pods"]["target"] == {"type": "AverageValue", "averageValue": "80"}
    assert metric["pods"]["metric"]["name"] in every["adapter-rules"]["data"]["rules.yaml"]
    assert "replicas" not in every["main"]["spec"]
    more = {**scaled, "autoscale": {"least": 2, "most": 5}}
    assert "= 5 GPUs, and 1 x 4 = 4 are there" in told(changed(four_gpus(), POOL, more))


@case("K8")
def a_drain_can_always_go_on() -> None:
    lone = changed(changed(four_gpus(), f"{POOL}.replicas", 1), "pools[0].single", True)
    assert "lets none go" in told(changed(lone, f"{POOL}.disruptions", {"min_available": 1}))
    assert made(lone)["main-budget"]["spec"]["maxUnavailable"] == 1
    two = changed(four_gpus(), f"{POOL}.replicas", 2)
    assert problems(changed(two, f"{POOL}.disruptions", {"min_available": 1})) == ()
    every = made(two)
    assert every["main-budget"]["spec"]["selector"] == every["main"]["spec"]["selector"]


@case("K10")
def shared_memory_is_a_volume_in_memory_within_the_limit() -> None:
    volumes = {volume["name"]: volume for volume in pod(made(four_gpus())["main"])["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "1024Mi"}
    assert {"name": "shm", "mountPath": "/dev/shm"} in server(four_gpus())["volumeMounts"]  # noqa: S108
    assert "exceeds container_mib" in told(changed(four_gpus(), "pools[0].memory.shm_mib", 100000))


@case("PK1")
def pulumi_and_kubernetes_wait_for_as_long_as_loading_takes() -> None:
    slow = changed(four_gpus(), "pools[0].load_timeout_s", 1500)
    (servers,) = [each for each in objects(plan(slow)) if each.key == "main"]
    assert (servers.create_timeout_s or 0) > 1500
    spec: Any = servers.manifest["spec"]
    assert spec["progressDeadlineSeconds"] > 1500
    assert "skipAwait" not in str(made(slow))


@case("PK2")
def a_folder_and_a_cluster_exclude_each_other_and_no_secret_is_made() -> None:
    both = changed(rendered_to(), "cluster.kubeconfig", "./kubeconfig")
    assert "cannot be combined with render_to" in told(both)
    assert "Secret" not in {each["kind"] for each in made(rendered_to()).values()}
    assert "front_end.tls: is for Docker" in told(changed(rendered_to(), "front_end", {"tls": {}}))


@case("PK3")
def other_batching_is_another_name_in_the_template_and_routes_touch_no_server() -> None:
    before = made(four_gpus())
    batched = made(changed(four_gpus(), "pools[0].batching.batch_timeout_micros", 5000))
    assert batched["main"]["metadata"] == before["main"]["metadata"]
    assert batched["main"]["spec"]["template"] != before["main"]["spec"]["template"]
    routed = made(changed(four_gpus(), "front_end", {"request_ids": {"in_answers": False}}))
    assert routed["main"] == before["main"]
    assert routed["envoy"] == before["envoy"]
