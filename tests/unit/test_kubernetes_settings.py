"""What a stack file for Kubernetes may say, and what is refused before anything is placed."""

import subprocess
import sys
from typing import Any

import pytest

from components.errors import SettingsError
from tests import golden, stacks
from tests.kubernetes_stacks import four_gpus, plan, rendered_to, settings
from tests.stacks import Config, changed, without

JWT = {
    "issuer": "https://issuer.example.com",
    "audiences": ["tf"],
    "keys": [{"kty": "EC", "crv": "P-256", "x": "eA", "y": "eQ"}],
}


def refusal(config: Config) -> str:
    return "\n".join(stacks.refusal(config))


def test_a_good_stack_file_is_accepted_for_a_cluster_and_for_a_folder() -> None:
    assert settings(four_gpus()).cluster.context == "gpu-cluster"
    assert settings(rendered_to()).cluster.render_to == "./rendered"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("pools[0].nodes.gpus", 0.5, "pools[0].nodes.gpus: 0.5: Kubernetes hands out whole GPUs"),
        ("pools[0].nodes.gpus", 0, "accepted: a whole number of GPUs, 1 to 16"),
        ("pools[0].nodes.gpus", 2, "pools[0].models[0].multi_gpu: is required with nodes.gpus 2"),
        ("pools[0].nodes.replicas", 5, "5 x 1 (main) = 5 GPUs, and 1 x 4 = 4 are there"),
        ("pools[0].nodes.surge", 1, "pools[0].nodes.surge: 1: needs 1 free GPUs while a change rolls"),
        ("pools[0].nodes.pool", "h100", "no such node pool; accepted: a100"),
        (
            "pools[0].nodes.disruptions",
            {"min_available": 4},
            "pools[0].nodes.disruptions.min_available: 4: of 4 pods lets none go",
        ),
        ("pools[0].nodes.disruptions", {}, "give exactly one: max_unavailable: <n> or min_available: <n>"),
        (
            "pools[0].nodes.autoscale",
            {"least": 1, "most": 4},
            "give exactly one: replicas: <n> or autoscale",
        ),
        ("pools[0].nodes.cpus", 31, "4 pods on a node of a100 need more than its 120 CPUs"),
        ("pools[0].nodes.cpus", 1.5, "pools[0].nodes.cpus: 1.5: must be a whole number"),
        ("pools[0].memory.container_mib", 200000, "4 pods on a node of a100 need more than its 480000 MiB"),
        ("pools[0].memory.shm_mib", 100000, "pools[0].memory.shm_mib: 100000: exceeds container_mib"),
        ("pools[0].slots", [{"node": "a", "gpus": [0]}], "pools[0].slots: is for Docker"),
        ("pools[0].name", "envoy", "is taken on Kubernetes"),
        ("pools[0].name", "envoy-metrics", "is taken on Kubernetes"),
        ("pools[0].name", "acceptance", "is taken on Kubernetes"),
        ("pools[0].name", "models", ""),
        ("pools[0].model_volume", {}, "give exactly one: claim: <name>, host_path: true or image: <image>"),
        ("pools[0].models[0].path", "./models/resnet50", "relative to this project, which no pod has"),
        ("node_pools[0].spare_gpus", 1, "4 x 1 (main) + 1 (spare) = 5 GPUs"),
        ("node_pools[0].gpu_resource", "nvidia.com/mig-1g.5gb", "a100-80g has no such profile; accepted:"),
        ("node_pools[0].gpu_resource", "nvidia.com/gpu.shared", "is refused in prod"),
        ("node_pools[0].gpu_model", "a1000", "node_pools[0].gpu_model: 'a1000': accepted: a100-80g"),
        ("node_pools[0].gpu_model", "l4", ""),
        ("node_pools[0].driver", "440.33.01", "carries CUDA 11.8: driver 450.80.02 or newer"),
        ("cluster.render_to", "./rendered", "cluster.kubeconfig: './kubeconfig': cannot be combined with"),
        ("front_end", {"replicas": 1}, "front_end.replicas: 1: "),
        ("front_end", {"tls": {}}, "front_end.tls: is for Docker; on Kubernetes name a Secret"),
        (
            "front_end",
            {"auth": {"api_keys": [{"client": "a", "key": "key_a"}]}},
            "front_end.auth.api_keys: is for Docker; on Kubernetes name a Secret of the cluster in api_",
        ),
        (
            "front_end",
            {"auth": {"jwt": JWT}, "api_keys_secret": "keys"},
            "front_end.api_keys_secret: (hidden): cannot be combined with auth",
        ),
        ("front_end", {"bind": "10.0.0.1"}, "front_end.bind: '10.0.0.1': is for Docker"),
        ("front_end", {"rest_port": 80}, "front_end.rest_port: 80: is below 1024"),
        ("front_end", {"source_ranges": ["10.0.0.0/8"]}, "only with service: LoadBalancer"),
        ("nodes", stacks.one_node()["nodes"], "nodes: is for Docker; on Kubernetes set node_pools"),
    ],
)
def test_what_kubernetes_would_refuse_or_never_place_is_refused_with_its_place(
    path: str, value: Any, said: str
) -> None:
    config = changed(four_gpus(), path, value)
    if said:
        assert said in refusal(config)
    else:
        assert stacks.problems(config) == ()


@pytest.mark.parametrize("missing", ["kubeconfig", "context"])
def test_a_cluster_is_named_in_full_or_not_reached(missing: str) -> None:
    assert f"cluster.{missing}: is required, or render_to" in refusal(
        without(four_gpus(), f"cluster.{missing}")
    )


def test_one_of_two_pods_may_always_be_drained_and_a_lone_one_too() -> None:
    two = changed(four_gpus(), "pools[0].nodes.replicas", 2)
    assert stacks.problems(changed(two, "pools[0].nodes.disruptions", {"min_available": 1})) == ()
    one = changed(changed(four_gpus(), "pools[0].single", True), "pools[0].nodes.replicas", 1)
    assert stacks.problems(one) == ()
    assert "lets none go" in refusal(changed(one, "pools[0].nodes.disruptions", {"min_available": 1}))


def test_parts_and_shares_of_gpus_are_resources_by_name() -> None:
    parts = changed(four_gpus(), "node_pools[0].gpu_resource", "nvidia.com/mig-1g.10gb")
    assert stacks.problems(parts) == ()
    shared = changed(four_gpus(), "node_pools[0].gpu_resource", "nvidia.com/gpu.shared")
    tried = changed(shared, "environment", "staging")
    assert "pools[0].gpu_memory.fraction: is required on shared GPUs" in refusal(tried)
    assert stacks.problems(changed(tried, "pools[0].gpu_memory", {"fraction": 0.2})) == ()


def test_models_fit_their_gpu_while_versions_change() -> None:
    sized = changed(four_gpus(), "pools[0].models[0].gpu_mib", (81920 - 1536) // 2)
    assert stacks.problems(sized) == ()
    larger = changed(sized, "pools[0].models[0].gpu_mib", (81920 - 1536) // 2 + 1)
    assert "pools[0].models: need 80386 MiB of GPU memory" in refusal(larger)
    part = changed(sized, "node_pools[0].gpu_resource", "nvidia.com/mig-3g.40gb")
    assert "but a slot has 38656 for them" in refusal(part)
    assert "but a slot has 40960 for them" in refusal(
        changed(sized, "pools[0].gpu_memory", {"fraction": 0.5})
    )
    assert stacks.problems(without(larger, "node_pools[0].gpu_model")) == ()


def test_several_gpus_are_for_models_that_say_so() -> None:
    nodes = {"pool": "a100", "replicas": 2, "cpus": 8, "gpus": 2}
    config = changed(stacks.in_staging(four_gpus()), "pools[0].nodes", nodes)
    assert stacks.problems(changed(config, "pools[0].models[0].multi_gpu", True)) == ()


@pytest.mark.parametrize(("spare", "surge"), [(0, 0), (1, 1)])
def test_a_new_pod_comes_first_only_where_a_gpu_is_spare(spare: int, surge: int) -> None:
    config = changed(four_gpus(), "pools[0].nodes.replicas", 3)
    config = changed(config, "node_pools[0].spare_gpus", spare)
    assert plan(config).servers[0].surge == surge


def test_an_autoscaler_keeps_within_the_gpus_and_to_one_measure() -> None:
    scaled = {"pool": "a100", "cpus": 8, "autoscale": {"least": 2, "most": 5}}
    assert "5 x 1 (main) = 5 GPUs" in refusal(changed(four_gpus(), "pools[0].nodes", scaled))
    both = {**scaled, "autoscale": {"least": 2, "most": 4, "cpu_percent": 50, "gpu_percent": 80}}
    assert "gpu_percent: 80: cannot be combined with cpu_percent" in refusal(
        changed(four_gpus(), "pools[0].nodes", both)
    )
    sticky = changed(changed(four_gpus(), "pools[0].nodes", scaled), "pools[0].balancing", {"sticky": True})
    assert "cannot be combined with balancing.sticky" in refusal(sticky)


def test_a_pool_cannot_be_called_as_a_part_of_another_is() -> None:
    config = four_gpus()
    text = {
        **config["pools"][0],
        "models": [{"name": "tagger", "path": "/tagger"}],
        "nodes": {"pool": "a100", "replicas": 1, "cpus": 8},
        "single": True,
    }
    three = changed(config, "pools[0].nodes.replicas", 3)["pools"][0]
    for name, free in (("main-models", False), ("main-service", False), ("main-text", True)):
        both = config | {"pools": [three, text | {"name": name}]}
        said = f"pools[1].name: '{name}': is taken on Kubernetes"
        assert stacks.problems(both) == () if free else said in refusal(both)


def test_a_mistake_does_not_hide_those_that_have_nothing_to_do_with_it() -> None:
    config = changed(four_gpus(), "pools[0].nodes.replicas", 5)
    config["clustr"] = {}
    lines = refusal(config)
    assert "clustr: {}: unknown key; did you mean cluster?" in lines
    assert "= 5 GPUs" in lines


def test_every_key_of_docker_is_still_unknown_there_if_it_is_kubernetes_own() -> None:
    config = stacks.one_node() | {"node_pools": four_gpus()["node_pools"]}
    assert "node_pools: " in refusal(config)
    assert "unknown key" in refusal(config)


def test_a_stack_of_docker_engines_waits_for_nothing_of_kubernetes() -> None:
    program = (
        "import sys; from pathlib import Path; from components.stack_file import load_stack_file;"
        "import components.targets, components.deployment; load_stack_file(Path('Pulumi.prod.yaml'));"
        "print([name for name in sys.modules if 'kubernetes' in name])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=golden.PROJECT, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_stack_whose_name_no_object_can_have_is_refused() -> None:
    with pytest.raises(SettingsError, match="on Kubernetes a stack is named in lower-case letters"):
        plan(four_gpus(), stack="My_Stack")
