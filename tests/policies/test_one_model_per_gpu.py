"""one-model-per-gpu: what pins in fact, in every notation, and who may share."""

from dataclasses import replace

import pytest

from tests.policies.good import UNKNOWN, Declared, deployment, exporter, front_end, publisher, server, uuid
from tests.policies.judge import messages, violations

RULE = "one-model-per-gpu"
MIG = "MIG-00000001-bbbb-4bbb-8bbb-000000000000"


def unpinned(gpu: int = 0, name: str = "raw") -> Declared:
    return server(gpu, name).without("deviceRequests").without("labels")


def judged(*declared: Declared, environment: str = "prod") -> str:
    return "\n".join(messages(RULE, *declared, environment=environment))


def test_four_servers_on_four_gpus_with_their_front_end_and_an_exporter_are_accepted() -> None:
    everything = [*(server(gpu) for gpu in range(4)), front_end(), exporter(), publisher()]
    assert violations(RULE, *everything) == []


def test_the_second_server_on_a_gpu_is_named_with_the_first_the_gpu_and_the_fix() -> None:
    [found] = violations(RULE, server(0, "first"), server(0, "second"))
    assert found.resource == "second"
    assert f"second: deviceRequests[0].deviceIds: {uuid(0)}: GPU {uuid(0)} is owned by first" in found.message
    assert "Fix: give each server a GPU" in found.message
    assert "tf-serving.sharing" not in found.message
    assert "the label tf-serving.sharing: 'true'" in judged(
        server(0, "a"), server(0, "b"), environment="local"
    )


def test_two_violations_of_one_stack_are_both_reported() -> None:
    found = violations(RULE, server(0, "a"), server(0, "b"), server(1, "c").changed("gpus", "all"))
    assert {one.resource for one in found} >= {"b", "c"}


@pytest.mark.parametrize(
    "pins",
    [
        {"gpus": f"device={uuid(0)}"},
        {"gpus": f'"device={uuid(0)}"'},
        {"runtime": "nvidia", "envs": [f"NVIDIA_VISIBLE_DEVICES={uuid(0)}"]},
        {"envs": [f"NVIDIA_VISIBLE_DEVICES={uuid(0).replace('GPU', 'gpu')}"]},
        {"deviceRequests": [{"driver": "cdi", "deviceIds": [f"nvidia.com/gpu={uuid(0)}"]}]},
        {"deviceRequests": [{"deviceIds": [f"nvidia.com/gpu={uuid(0)}"]}]},
        {"devices": [{"hostPath": f"nvidia.com/gpu={uuid(0)}"}]},
        # By index, which the node's map turns into the UUID.
        {"gpus": "device=0"},
        {"runtime": "nvidia", "envs": ["NVIDIA_VISIBLE_DEVICES=0"]},
        {"devices": [{"hostPath": "/dev/nvidiactl"}, {"hostPath": "/dev/nvidia0"}]},
        {"deviceRequests": [{"driver": "cdi", "deviceIds": ["nvidia.com/gpu=0"]}]},
    ],
)
def test_every_way_to_pin_a_card_is_the_same_card(pins: dict[str, object]) -> None:
    raw = unpinned()
    for name, value in pins.items():
        raw = raw.changed(name, value)
    owned = judged(server(0), raw, publisher(node_gpus=f"0={uuid(0)};1={uuid(1)}"))
    assert f"GPU {uuid(0)} is owned by gpu0" in owned
    assert judged(server(1), raw, publisher(node_gpus=f"0={uuid(0)};1={uuid(1)}")) == ""


def test_without_the_nodes_map_an_index_beside_a_uuid_is_refused() -> None:
    assert "may be one card" in judged(server(1), unpinned().changed("gpus", "device=0"))
    by_index = [unpinned(gpu, f"raw{gpu}").changed("gpus", f"device={gpu}") for gpu in (0, 1)]
    assert judged(*by_index) == ""
    assert "GPU 0 is owned by raw0" in judged(by_index[0], by_index[1].changed("gpus", "device=0"))


def test_an_index_is_a_card_of_its_own_machine_and_a_uuid_the_same_everywhere() -> None:
    here = unpinned(0, "here").changed("gpus", "device=0")
    there = here.named("there").on("ssh://deploy@gpu-02.example.com")
    assert judged(here, there) == ""
    assert "is owned by here" in judged(here, here.named("again").on("ssh://other@gpu-01.example.com:22"))
    assert "is owned by gpu0" in judged(server(0), server(0, "there").on("tcp://10.0.0.1:2376"))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("gpus", "all", "gpus: all: takes all GPUs"),
        ("gpus", "2", "gpus: 2: is a count and no index"),
        ("gpus", "0", "gpus: 0: is a count of none"),
        ("gpus", f"device={uuid(0)},{uuid(1)}", "takes 2 GPUs"),
        ("runtime", "nvidia", "runtime nvidia without NVIDIA_VISIBLE_DEVICES: all"),
        ("envs", ["NVIDIA_VISIBLE_DEVICES=all"], "envs.NVIDIA_VISIBLE_DEVICES: all"),
        ("deviceRequests", [{"driver": "nvidia", "count": -1.0}], "deviceRequests[0].count: all"),
        ("deviceRequests", [{"driver": "nvidia", "count": 1.0}], "deviceRequests[0].count: 1: is a count"),
        ("deviceRequests", [{"driver": "nvidia", "capabilities": ["gpu"]}], "count: 0: is a count of none"),
        ("deviceRequests", [{"deviceIds": ["nvidia.com/gpu=all"]}], "deviceIds: all"),
        ("privileged", True, "privileged: true: a privileged container sees all GPUs"),
        ("devices", [{"hostPath": "/dev"}], "devices[0].hostPath: all"),
    ],
)
def test_all_counts_and_lists_are_refused(path: str, value: object, said: str) -> None:
    found = judged(unpinned().changed(path, value))
    assert said in found
    assert "tf-serving.all-gpus" not in found


def test_outside_prod_a_refusal_says_how_to_have_all_gpus() -> None:
    found = judged(unpinned().changed("gpus", "all"), environment="staging")
    assert "gpus: all: takes all GPUs" in found
    assert "or say so: the label tf-serving.all-gpus: 'true'" in found


def test_a_label_that_names_what_is_pinned_is_read_with_some_leniency() -> None:
    assert judged(server(0).labelled(gpu=f" {uuid(0).upper()},")) == ""
    assert "label tf-serving.gpu: GPU-x: is not what it is given" in judged(server(0).labelled(gpu="GPU-x"))
    everything = server(0).without("deviceRequests").changed("gpus", "all").labelled(all_gpus="true")
    assert judged(everything, environment="staging") == ""


def test_variables_that_are_not_known_matter_to_servers_alone() -> None:
    assert judged(front_end().changed("envs", [UNKNOWN])) == ""
    for declared in (server(0), server(0).changed("runtime", "nvidia")):
        [found, *_] = messages(RULE, declared.changed("envs[1]", UNKNOWN))
        assert "GPU of gpu0 is not known in preview: envs[1]" in found


def test_a_container_that_sees_all_gpus_is_refused_beside_the_owner_of_one() -> None:
    everything = unpinned().changed("gpus", "all").labelled(all_gpus="true")
    assert judged(everything, environment="staging") == ""
    assert "on which gpu1 has one" in judged(everything, server(1), environment="staging")
    assert "on which other has one" in judged(everything.named("other"), everything, environment="staging")


@pytest.mark.parametrize("environment", ["local", "staging", "prod"])
def test_only_outside_prod_a_slot_is_shared_by_name(environment: str) -> None:
    both = [server(0, "a").labelled(sharing="true"), server(0, "b").labelled(sharing="true")]
    assert bool(judged(*both, environment=environment)) == (environment == "prod")
    assert "is owned by a" in judged(both[0], server(0, "b"), environment=environment)


@pytest.mark.parametrize("environment", ["local", "staging", "prod"])
def test_only_outside_prod_one_container_has_all_gpus_by_name(environment: str) -> None:
    some = server(0).changed("deviceRequests[0].deviceIds", [uuid(0), uuid(1)])
    said = some.labelled(all_gpus="true", gpu=f"{uuid(0)},{uuid(1)}")
    assert bool(judged(said, environment=environment)) == (environment == "prod")


def test_parts_of_a_card_are_slots_of_their_own() -> None:
    parts = [unpinned(0, f"part{n}").changed("gpus", f"device={MIG[:-1]}{n}") for n in (0, 1)]
    assert judged(*parts, server(1)) == ""
    assert "the MIG instance" in judged(parts[0], parts[0].named("again"))


def test_a_card_that_is_cut_up_has_no_whole_to_give() -> None:
    part = unpinned().changed("gpus", f"device=MIG-{uuid(0)}/3/0")
    [found] = violations(RULE, server(0), part)
    assert found.resource == "gpu0"
    assert "raw has a MIG instance of the same GPU" in found.message
    by_index = unpinned().changed("gpus", "device=0:1")
    map_of_node = publisher(node_gpus=f"0={uuid(0)}")
    assert "raw has a MIG instance of the same GPU" in judged(server(0), by_index, map_of_node)
    beside = unpinned(0, "beside").changed("gpus", "device=0:2")
    assert judged(by_index, beside, map_of_node) == ""


def test_what_a_container_names_twice_is_not_held_against_itself() -> None:
    both = server(0).changed("gpus", "device=1")
    assert "may be one card" not in judged(both)
    greedy = server(0).changed("gpus", "all").labelled(all_gpus="true")
    assert "on which" not in judged(greedy, environment="staging")


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("deviceRequests[0].deviceIds[0]", "deviceRequests[0].deviceIds[0]"),
        ("deviceRequests[0].deviceIds", "deviceRequests[0].deviceIds"),
        ("deviceRequests[0]", "deviceRequests[0]"),
        ("deviceRequests", "deviceRequests"),
        ("runtime", "runtime"),
        ("gpus", "gpus"),
        ("envs[1]", "envs[1]"),
        ("privileged", "privileged"),
        ("devices", "devices"),
    ],
)
def test_a_gpu_that_is_not_known_in_preview_is_refused_by_resource(path: str, where: str) -> None:
    [found, *_] = violations(RULE, server(0).without("labels").changed(path, UNKNOWN), server(1))
    assert found.resource == "gpu0"
    assert f"GPU of gpu0 is not known in preview: {where}" in found.message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("deviceRequests", 5.0),
        ("deviceRequests", "nvidia"),
        ("deviceRequests", [None]),
        ("deviceRequests[0].deviceIds", {"a": "b"}),
        ("envs", {"A": "b"}),
        ("gpus", ["all"]),
        ("devices", [7.0]),
    ],
)
def test_odd_properties_are_no_reason_to_fail_and_none_to_pass(path: str, value: object) -> None:
    found = judged(server(0).changed(path, value), server(1))
    assert "could not judge" not in found
    assert found != ""


def test_a_container_without_any_property_is_none_of_its_business() -> None:
    assert judged(Declared(type=server().type, name="empty", props={})) == ""


def test_a_label_that_names_another_gpu_is_refused() -> None:
    assert f"label tf-serving.gpu: {uuid(3)}: is not what it is given ({uuid(0)})" in judged(
        server(0).labelled(gpu=uuid(3))
    )


def test_a_label_alone_pins_nothing() -> None:
    assert "is not what it is given (none)" in judged(server(0).without("deviceRequests"))


def test_a_model_server_is_never_exempt() -> None:
    named = unpinned().changed("gpus", "all")
    assert judged(replace(exporter(), name="x")) == ""
    assert "takes all GPUs" in judged(named.labelled(exempt=RULE))
    assert "takes all GPUs" in judged(exporter().labelled(exempt="other-rule"))


SEVERAL = 'model_config_list { config { name: "a" } config { name: "b" } } # name: "c"\n'


def test_several_models_of_one_server_pass_only_where_they_are_declared() -> None:
    both = server(0).changed("uploads[0].content", SEVERAL)
    assert "serves 2 models (a, b) on one GPU, but its label tf-serving.models says resnet50" in judged(both)
    assert "says nothing" in judged(both.without("labels"))
    assert judged(both.labelled(models="a,b")) == ""
    assert "says a" in judged(both.labelled(models="a"))
    assert judged(both.labelled(models="a", models_folder="/srv/models")) == ""


def test_models_on_a_volume_are_read_from_its_publisher() -> None:
    volume = {"type": "volume", "source": "main-config", "target": "/config", "readOnly": True}
    on_volume = (
        server(0)
        .changed("mounts[1]", volume)
        .changed("uploads", [])
        .changed("command[2]", "--model_config_file=/config/models.config")
    )
    writes = publisher().changed("uploads[0]", {"file": "/in/models.config", "content": SEVERAL})
    assert "serves 2 models" in judged(on_volume, writes)
    assert judged(on_volume.labelled(models="a,b"), writes) == ""
    assert judged(on_volume.labelled(models=" b, a,"), writes) == ""


LIMITS = "spec.template.spec.containers[0].resources.limits"
GPU_LIMIT = "nvidia.com/gpu"


def with_limits(limits: dict[str, object], requests: dict[str, object] | None = None) -> Declared:
    resources: dict[str, object] = {"limits": limits}
    if requests is not None:
        resources["requests"] = requests
    return deployment().changed("spec.template.spec.containers[0].resources", resources)


@pytest.mark.parametrize(
    "good",
    [
        deployment(),
        with_limits({GPU_LIMIT: 1.0}),
        with_limits({GPU_LIMIT: "1"}, {GPU_LIMIT: "1"}),
        with_limits({"nvidia.com/mig-3g.40gb": "1"}),
    ],
)
def test_one_gpu_or_one_part_in_limits_is_accepted_on_kubernetes(good: Declared) -> None:
    assert judged(good) == ""


def web(resources: dict[str, object], **context: object) -> Declared:
    """A pod that serves no model."""
    container = {"name": "web", "image": "web:1.0.0", "resources": resources, "securityContext": context}
    pod = deployment("web").changed("spec.template.metadata.labels", {"tf-serving.role": "other"})
    return pod.changed("spec.template.spec.containers", [container])


def test_a_pod_without_gpus_is_none_of_its_business() -> None:
    assert judged(web({})) == ""
    assert judged(with_limits({"memory": "1Gi"})) == ""


def test_what_serves_no_model_has_one_gpu_too_or_says_that_it_has_none_of_its_own() -> None:
    bad = [
        web({"limits": {GPU_LIMIT: "2"}}),
        web({"requests": {GPU_LIMIT: "1"}}),
        web({}, privileged=True),
    ]
    said = ["nvidia.com/gpu: 2: a model server has", "resources.limits: none", "privileged: true"]
    for declared, words in zip(bad, said, strict=True):
        assert words in judged(declared)
        assert judged(declared.labelled(exempt=RULE)) == ""
    assert "resources.limits" not in judged(bad[2])


@pytest.mark.parametrize("nothing", ["void", "none"])
def test_what_needs_no_gpu_may_keep_all_of_them_from_itself(nothing: str) -> None:
    variable = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": nothing}]
    assert judged(web({}).changed("spec.template.spec.containers[0].env", variable)) == ""
    copying = {"name": "models", "image": "models:1.0.0", "env": variable}
    assert judged(deployment().changed("spec.template.spec.initContainers", [copying])) == ""
    found = judged(deployment().changed("spec.template.spec.containers[0].env[1]", variable[0]))
    assert f"NVIDIA_VISIBLE_DEVICES: {nothing}: overrides the GPU that the scheduler chose" in found


def test_a_variable_that_comes_from_elsewhere_may_say_anything() -> None:
    elsewhere = {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    assert "overrides the GPU" in judged(web({}).changed("spec.template.spec.containers[0].env", [elsewhere]))


def test_a_server_that_takes_a_gpu_past_the_scheduler_lacks_a_limit() -> None:
    variable = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}
    past = with_limits({}).changed("spec.template.spec.containers[0].env[1]", variable)
    found = judged(past.labelled(exempt=RULE))
    assert "NVIDIA_VISIBLE_DEVICES: 0: overrides" in found
    assert "resources.limits: none: a model server has exactly one GPU" in found


@pytest.mark.parametrize("environment", ["local", "staging", "prod"])
def test_only_outside_prod_a_pod_has_a_share_or_all_gpus_by_name(environment: str) -> None:
    share, all_gpus = with_limits({"nvidia.com/gpu.shared": "1"}), with_limits({GPU_LIMIT: "4"})
    assert "a share of a GPU" in judged(share, environment=environment)
    refused = environment == "prod"
    assert bool(judged(share.labelled(sharing="true"), environment=environment)) == refused
    assert bool(judged(all_gpus.labelled(all_gpus="true"), environment=environment)) == refused


def test_several_gpus_are_for_models_that_say_that_they_compute_on_several() -> None:
    several = with_limits({GPU_LIMIT: "2"})
    assert "or say that its models compute on several: the label tf-serving.multi-gpu: 'true'" in judged(
        several
    )
    assert judged(several.labelled(multi_gpu="true")) == ""
    assert judged(several.labelled(multi_gpu="false")) != ""
    assert "nvidia.com/gpu: 0" in judged(with_limits({GPU_LIMIT: "0"}).labelled(multi_gpu="true"))


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (
            with_limits({GPU_LIMIT: "2"}),
            "resources.limits: nvidia.com/gpu: 2: a model server has exactly one GPU",
        ),
        (with_limits({GPU_LIMIT: "0"}), "nvidia.com/gpu: 0"),
        (with_limits({GPU_LIMIT: "1", "nvidia.com/mig-1g.10gb": "1"}), "exactly one GPU"),
        (with_limits({}, {GPU_LIMIT: "1"}), "resources.limits: none"),
        (with_limits({GPU_LIMIT: "1"}, {GPU_LIMIT: "2"}), "resources.requests: nvidia.com/gpu: 2: differ"),
        (with_limits({"nvidia.com/gpu.shared": "1"}), "a share of a GPU"),
        (with_limits({GPU_LIMIT: UNKNOWN}), "GPU of main/server is not known in preview"),
        (
            deployment().changed(
                "spec.template.spec.containers[0].env[1]", {"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}
            ),
            "env.NVIDIA_VISIBLE_DEVICES: 0: overrides the GPU that the scheduler chose",
        ),
        (
            deployment().changed("spec.template.spec.containers[0].securityContext", {"privileged": True}),
            "securityContext.privileged: true",
        ),
    ],
)
def test_other_requests_are_refused_on_kubernetes(bad: Declared, said: str) -> None:
    assert said in judged(bad)


def test_replicas_fit_the_nodes_of_their_pool() -> None:
    four = [deployment("a", 2).labelled(pool_gpus="4"), deployment("b", 2).labelled(pool_gpus="4")]
    assert judged(*four) == ""
    idle = web({}).changed("spec.replicas", 9.0)
    [found] = violations(RULE, four[0], four[1].changed("spec.replicas", 3.0), idle)
    assert found.resource == "b"
    assert "replicas: a/server (2), b/server (3) want 5 GPUs, and their nodes have 4" in found.message
