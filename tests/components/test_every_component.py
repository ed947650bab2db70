"""What holds of each component: usable alone from another program, and honest about its outputs."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path

import pulumi
import pulumi_docker as docker
import pytest

from components.batching import BatchingConfig, BatchingConfigArgs
from components.envoy import EnvoyFrontEnd, EnvoyFrontEndArgs
from components.gpu_node import GpuNode, GpuNodeArgs
from components.plan import InstancePlan, NodePlan
from components.pool_settings import Batching
from components.tf_serving import TfServingInstance, TfServingInstanceArgs
from tests import stacks
from tests.mock_engine import CONTAINER, NETWORK, PROVIDER, Deploy, Engine

Component = GpuNode | BatchingConfig | TfServingInstance | EnvoyFrontEnd
Make = Callable[[], Component]


def node_plan() -> NodePlan:
    return stacks.plan(stacks.two_nodes()).nodes[1]


def instance_plan() -> InstancePlan:
    (found,) = [found for found in node_plan().instances if found.name == "gpu-02-gpu2"]
    return found


def own_engine() -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions(providers={"docker": docker.Provider("theirs", host="ssh://theirs")})


def gpu_node() -> GpuNode:
    return GpuNode("mine", GpuNodeArgs(plan=node_plan()))


def batching_config() -> BatchingConfig:
    batching = Batching(max_batch_size=4, batch_timeout_micros=10)
    return BatchingConfig("mine", BatchingConfigArgs(batching=batching))


def tf_serving_instance() -> TfServingInstance:
    args = TfServingInstanceArgs(plan=instance_plan(), network="their-network")
    return TfServingInstance("mine", args, own_engine())


def envoy_front_end() -> EnvoyFrontEnd:
    args = EnvoyFrontEndArgs(
        plan=node_plan().front_end,
        serving_network="their-network",
        front_network="their-other-network",
        address="serving.example.com",
    )
    front_end = EnvoyFrontEnd("mine", args, own_engine())
    front_end.accept([])
    return front_end


MAKERS: dict[str, Make] = {
    "tf-serving:gpu_node:GpuNode": gpu_node,
    "tf-serving:batching:BatchingConfig": batching_config,
    "tf-serving:tf_serving:TfServingInstance": tf_serving_instance,
    "tf-serving:envoy:EnvoyFrontEnd": envoy_front_end,
}


def public_names(component: Component) -> list[str]:
    # Resources are no outputs: a node's provider and images are for the program that places something there,
    # and what was staged is to be waited for.
    resources = ("provider", "images", "staged")
    return sorted(name for name in type(component).__annotations__ if name not in resources)


def run(deploy: Deploy, make: Make) -> Engine:
    def program() -> dict[str, object]:
        component = make()
        return {name: getattr(component, name) for name in public_names(component)}

    return deploy(program)


@pytest.mark.parametrize(("token", "make"), MAKERS.items())
def test_another_program_uses_the_component_alone_under_its_own_name(
    deploy: Deploy, token: str, make: Make
) -> None:
    engine = run(deploy, make)
    component = engine.one(token, "mine")
    children = [found for found in engine.resources if found.parent == component.urn]
    below = [found for found in engine.resources if found.parent in {child.urn for child in children}]
    others = [found.name for found in engine.resources if found not in (component, *children, *below)]
    assert others in ([], ["theirs"])
    assert all(child.name.startswith("mine-") for child in children)


@pytest.mark.parametrize(("token", "make"), MAKERS.items())
def test_the_registered_outputs_are_the_public_attributes(deploy: Deploy, token: str, make: Make) -> None:
    engine = run(deploy, make)
    assert engine.exports
    assert engine.one(token, "mine").outputs == engine.exports


@pytest.mark.parametrize(("token", "make"), MAKERS.items())
def test_two_of_a_kind_do_not_collide(deploy: Deploy, token: str, make: Make) -> None:
    def program() -> None:
        make()
        # The mock engine refuses a URN that is registered twice: only the names differ.
        match token.rpartition(":")[2]:
            case "GpuNode":
                GpuNode("other", GpuNodeArgs(plan=node_plan()))
            case "BatchingConfig":
                batching = Batching(max_batch_size=4, batch_timeout_micros=10)
                BatchingConfig("other", BatchingConfigArgs(batching=batching))
            case "TfServingInstance":
                opts = pulumi.ResourceOptions(providers=[docker.Provider("other-engine")])
                args = TfServingInstanceArgs(plan=instance_plan(), network="n")
                TfServingInstance("other", args, opts)
            case _:
                opts = pulumi.ResourceOptions(providers=[docker.Provider("other-engine")])
                args_ = EnvoyFrontEndArgs(
                    plan=node_plan().front_end, serving_network="n", front_network="f", address="a"
                )
                EnvoyFrontEnd("other", args_, opts)

    assert len(deploy(program).of_type(token)) == 2


@pytest.mark.parametrize("make", [tf_serving_instance, envoy_front_end])
def test_a_container_is_on_the_engine_that_the_program_hands_over(deploy: Deploy, make: Make) -> None:
    engine = run(deploy, make)
    for container in engine.of_type(CONTAINER):
        assert container.provider.startswith(f"{engine.one(PROVIDER, 'theirs').urn}::")


def test_without_an_engine_a_container_is_not_placed_on_the_one_of_the_shell(deploy: Deploy) -> None:
    def program() -> None:
        TfServingInstance("mine", TfServingInstanceArgs(plan=instance_plan(), network="n"))

    with pytest.raises(Exception, match="names no provider"):
        deploy(program)


def test_the_arguments_of_a_component_cannot_be_changed() -> None:
    args = GpuNodeArgs(plan=node_plan())
    with pytest.raises(FrozenInstanceError):
        args.plan = node_plan()  # type: ignore[misc]


def test_a_nodes_networks_keep_instances_inside(deploy: Deploy) -> None:
    engine = run(deploy, gpu_node)
    networks = {found.name: found for found in engine.of_type(NETWORK)}
    serving, front = networks["mine-serving"].inputs, networks["mine-front"].inputs
    assert (serving["name"], serving["internal"]) == ("test-serving", True)
    assert (front["name"], front["internal"]) == ("test-front", False)
    assert serving["ipamConfigs"] == [{"subnet": "172.29.80.0/25", "gateway": "172.29.80.1"}]
    assert front["ipamConfigs"] == [{"subnet": "172.29.80.128/25", "gateway": "172.29.80.129"}]
    assert all(found.delete_before_replace for found in networks.values())
    assert engine.exports == {
        "serving_network": "test-serving",
        "front_network": "test-front",
    }


@pytest.mark.parametrize(
    ("docker_settings", "inputs"),
    [
        ({"endpoint": "default"}, {}),
        ({"endpoint": "unix:///run/docker.sock"}, {"host": "unix:///run/docker.sock", "certPath": ""}),
        (
            {"endpoint": "ssh://svc@gpu01:22", "ssh_options": ["-o", "BatchMode=yes"]},
            {"host": "ssh://svc@gpu01:22", "sshOpts": '["-o", "BatchMode=yes"]', "certPath": ""},
        ),
        (
            {"endpoint": "tcp://gpu01:2376", "cert_path": "/etc/docker/gpu01"},
            {"host": "tcp://gpu01:2376", "certPath": "/etc/docker/gpu01"},
        ),
        (
            {"endpoint": "tcp://gpu01:2376", "cert_path": "./certs"},
            {"host": "tcp://gpu01:2376", "certPath": "certs"},
        ),
        (
            {"endpoint": "tcp://gpu01:2376", "cert_path": "~/certs"},
            {"host": "tcp://gpu01:2376", "certPath": str(Path.home() / "certs")},
        ),
    ],
)
def test_a_nodes_engine_is_reached_as_the_stack_file_says(
    deploy: Deploy, docker_settings: object, inputs: dict[str, object]
) -> None:
    config = stacks.changed(stacks.one_node(), "nodes[0].docker", docker_settings)
    (plan,) = stacks.plan(config).nodes

    def program() -> None:
        GpuNode("mine", GpuNodeArgs(plan=plan))

    (provider,) = deploy(program).of_type(PROVIDER)
    given = {key: value for key, value in provider.inputs.items() if key in ("host", "sshOpts", "certPath")}
    assert {key: str(value).replace("'", '"') for key, value in given.items()} == inputs


def test_a_batching_file_says_what_it_is_and_how_it_differs(deploy: Deploy) -> None:
    engine = run(deploy, batching_config)
    assert engine.exports["max_batch_size"] == 4
    assert engine.exports["text"].startswith("max_batch_size { value: 4 }\n")
    assert len(engine.exports["sha256"]) == 64


def test_an_instance_says_where_envoy_reaches_it_and_which_gpu_it_owns(deploy: Deploy) -> None:
    assert run(deploy, tf_serving_instance).exports == {
        "name": "gpu-02-gpu2",
        "rest_target": "172.29.80.24:8501",
        "grpc_target": "172.29.80.24:8500",
        "gpus": [stacks.uuid(2, node=2)],
    }


def test_a_front_end_says_where_clients_reach_it(deploy: Deploy) -> None:
    assert run(deploy, envoy_front_end).exports == {
        "rest_url": "http://serving.example.com:8080",
        "grpc_target": "serving.example.com:8500",
        "metrics_target": "127.0.0.1:9902",
    }
