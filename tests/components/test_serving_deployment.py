"""A whole stack on the mock engine: what there is, on which node, in which order, with which outputs."""

import re
from pathlib import Path

import pytest

from components.deployment import ServingDeployment, ServingDeploymentArgs
from components.envoy_files import bootstrap_file, envoy_files
from components.outputs import StackOutputs
from components.settings import Settings
from components.stack_file import load_stack_file
from tests import stacks
from tests.mock_engine import (
    CONTAINER,
    NETWORK,
    PROVIDER,
    VOLUME,
    Deploy,
    Engine,
    Program,
    Registered,
    computed,
    uploads,
)

ROOT = Path(__file__).resolve().parents[2]
INSTANCE = "tf-serving:tf_serving:TfServingInstance"
REMOTE_IMAGE = "docker:index/remoteImage:RemoteImage"
CONFIG = "tf-serving:config_volume:ConfigVolume"
FRONT_END = "tf-serving:envoy:EnvoyFrontEnd"
FORBIDDEN_INPUTS = {
    "privileged",
    "devices",
    "gpus",
    "hosts",
    "ipcMode",
    "pidMode",
    "publishAllPorts",
    "runtime",
    "usernsMode",
    "volumes",
}


def program(settings: Settings) -> Program:
    def run() -> dict[str, object]:
        args = ServingDeploymentArgs(settings=settings, stack="test", project_folder=stacks.PROJECT_FOLDER)
        return dict(ServingDeployment("serving", args).outputs.model_dump())

    return run


@pytest.fixture
def local(deploy: Deploy) -> Engine:
    return deploy(program(load_stack_file(ROOT / "Pulumi.local.yaml")))


@pytest.fixture
def two_nodes(deploy: Deploy) -> Engine:
    return deploy(program(stacks.settings(stacks.two_nodes())))


def instances(engine: Engine) -> list[Registered]:
    of_instances = [one for one in engine.of_type(CONTAINER) if engine.by_urn(one.parent).type == INSTANCE]
    return [found for found in of_instances if found.name.endswith("-server")]


def publishers(engine: Engine) -> list[Registered]:
    return [found for found in engine.of_type(CONTAINER) if engine.by_urn(found.parent).type == CONFIG]


def front_ends(engine: Engine) -> list[Registered]:
    return [found for found in engine.of_type(CONTAINER) if found.name.endswith("-proxy")]


def acceptances(engine: Engine) -> list[Registered]:
    return [found for found in engine.of_type(CONTAINER) if found.name.endswith("-acceptance")]


def drains(engine: Engine) -> list[Registered]:
    return [found for found in engine.of_type(CONTAINER) if found.name.endswith("-drain")]


def node_of(resource: Registered) -> str:
    labels = {pair["label"]: pair["value"] for pair in resource.inputs["labels"]}
    return str(labels["tf-serving.node"])


def test_the_local_stack_is_four_servers_their_files_and_one_front_end_on_two_networks(local: Engine) -> None:
    assert sorted(found.inputs["name"] for found in local.of_type(CONTAINER)) == [
        "test.local-envoy",
        "test.local-envoy-acceptance",
        "test.local-envoy-publisher",
        *(name for gpu in range(4) for name in (f"test.local-gpu{gpu}", f"test.local-gpu{gpu}-drain")),
        "test.local-main-publisher",
    ]
    assert sorted(found.inputs["name"] for found in local.of_type(VOLUME)) == [
        "test.local-envoy-config",
        "test.local-main-config",
    ]
    assert sorted(found.inputs["name"] for found in local.of_type(NETWORK)) == [
        "test-front",
        "test-serving",
    ]
    assert len(local.of_type(PROVIDER)) == 1


def test_each_server_asks_for_its_own_gpu_by_uuid(local: Engine) -> None:
    requests = {found.inputs["name"]: found.inputs["deviceRequests"] for found in instances(local)}
    assert requests == {
        f"test.local-gpu{gpu}": [
            {
                "driver": "nvidia",
                "capabilities": ["gpu"],
                "deviceIds": [f"GPU-00000000-0000-4000-8000-{gpu:012d}"],
            }
        ]
        for gpu in range(4)
    }


def test_a_front_end_asks_for_no_gpu(local: Engine) -> None:
    assert [found.inputs.get("deviceRequests") for found in front_ends(local)] == [None]


def test_nothing_but_the_front_end_publishes_a_port(two_nodes: Engine) -> None:
    assert len(instances(two_nodes)) == 5
    assert all(not found.inputs.get("ports") for found in instances(two_nodes))
    assert len(front_ends(two_nodes)) == 2
    for found in two_nodes.of_type(CONTAINER):
        assert bool(found.inputs.get("ports")) == (found in front_ends(two_nodes)), found.name


def test_no_container_gets_more_rights_than_it_needs(two_nodes: Engine) -> None:
    for found in two_nodes.of_type(CONTAINER):
        assert found.inputs["capabilities"] == {"drops": ["ALL"]}, found.name
        assert found.inputs["securityOpts"] == ["no-new-privileges:true"], found.name
        assert not FORBIDDEN_INPUTS & set(found.inputs), found.name
        writable = [mount["source"] for mount in found.inputs.get("mounts", []) if not mount["readOnly"]]
        fills = found in [*publishers(two_nodes), *acceptances(two_nodes), *drains(two_nodes)]
        # The front end says what it runs in the one folder of its volume that is not root's alone.
        says = found.inputs["name"].endswith("-envoy")
        assert len(writable) == (1 if fills or says else 0), found.name


def test_no_container_swaps(two_nodes: Engine) -> None:
    for found in two_nodes.of_type(CONTAINER):
        assert found.inputs["memory"] == found.inputs["memorySwap"] > 0, found.name


def test_up_waits_for_the_health_of_every_container(two_nodes: Engine) -> None:
    for found in two_nodes.of_type(CONTAINER):
        assert found.inputs["wait"] is True, found.name
        assert found.inputs["healthcheck"]["tests"][0] == "CMD", found.name


def test_what_the_provider_does_not_apply_in_place_replaces_the_container(two_nodes: Engine) -> None:
    for found in two_nodes.of_type(CONTAINER):
        assert {"healthcheck", "init", "mounts", "mustRun", "tmpfs"} <= set(found.replace_on_changes), (
            found.name
        )
        assert found.delete_before_replace, found.name


def test_everything_of_a_node_is_on_that_nodes_engine(two_nodes: Engine) -> None:
    providers = {found.name: found for found in two_nodes.of_type(PROVIDER)}
    assert set(providers) == {"gpu-01-docker", "gpu-02-docker"}
    placed = [*two_nodes.of_type(CONTAINER), *two_nodes.of_type(NETWORK), *two_nodes.of_type(VOLUME)]
    assert len(placed) == 7 + 3 + 4 + 3 + 2 * 3 + 5
    for found in placed:
        node = two_nodes.by_urn(found.parent).name if found.type == NETWORK else node_of(found)
        assert found.provider.startswith(f"{providers[f'{node}-docker'].urn}::"), found.name


def test_a_pool_is_rolled_one_at_a_time_in_the_slot_order_of_the_file(two_nodes: Engine) -> None:
    waits_for = {
        found.inputs["name"]: sorted(
            before.inputs["name"]
            for before in map(two_nodes.by_urn, found.dependencies)
            if before.type == CONTAINER and before not in publishers(two_nodes)
        )
        for found in [*instances(two_nodes), *drains(two_nodes), *front_ends(two_nodes)]
    }
    before = {
        "test.gpu-02-gpu1": [],
        "test.gpu-02-gpu0": ["test.gpu-02-gpu1"],
        "test.gpu-01-gpu2": ["test.gpu-02-gpu0"],
        "test.gpu-01-gpu0": ["test.gpu-01-gpu2"],
        "test.gpu-02-gpu2": [],
    }
    assert waits_for == {
        **{
            f"{name}-drain": [part for one in earlier for part in (one, f"{one}-drain")]
            for name, earlier in before.items()
        },
        **{name: [f"{name}-drain"] for name in before},
        "test.gpu-01-envoy": [],
        "test.gpu-02-envoy": [],
    }


def test_two_of_a_pool_may_be_away_at_once_where_it_says_so(deploy: Deploy) -> None:
    config = stacks.changed(stacks.two_nodes(), "pools[0].max_unavailable", 2)
    engine = deploy(program(stacks.settings(config)))
    waits_for = {
        found.name: [before.name for before in instances(engine) if before.urn in found.dependencies]
        for found in drains(engine)
    }
    assert waits_for == {
        "gpu-02-gpu1-drain": [],
        "gpu-02-gpu0-drain": [],
        "gpu-01-gpu2-drain": ["gpu-02-gpu1-server"],
        "gpu-01-gpu0-drain": ["gpu-02-gpu0-server"],
        "gpu-02-gpu2-drain": [],
    }
    for found in instances(engine):
        own = f"{found.name.removesuffix('-server')}-drain"
        assert own in {one.name for one in drains(engine) if one.urn in found.dependencies}


def test_a_drain_knows_envoy_by_what_is_on_its_volume_and_sits_where_it_can_ask_it(two_nodes: Engine) -> None:
    found = two_nodes.container("test.gpu-02-gpu2-drain")
    assert found.inputs["networksAdvanced"] == [{"name": "test-front", "ipv4Address": "172.29.80.152"}]
    assert [mount["source"] for mount in found.inputs["mounts"]] == ["test.gpu-02-envoy-config"]
    assert two_nodes.container("test.gpu-02-envoy-publisher").urn in found.dependencies

    def settings(node: str) -> str:
        published = uploads(two_nodes.container(f"test.{node}-envoy-publisher"))
        assert "drain() {" in published["/publish/files/drain.sh"]
        return published["/publish/files/drain.conf"]

    assert settings("gpu-02") == (
        "envoy 172.29.80.130 9903 9902 30\n"
        "gpu-02-gpu0 172.29.80.10 172.29.80.17\n"
        "gpu-02-gpu1 172.29.80.17 -\n"
        "gpu-02-gpu2 172.29.80.24 -\n"
    )
    # One that follows an instance of another node cannot ask that node's Envoy.
    other = settings("gpu-01").splitlines()
    assert other[1:] == ["gpu-01-gpu0 172.29.80.10 172.29.80.24", "gpu-01-gpu2 172.29.80.24 -"]


def test_an_instance_is_not_touched_before_its_files_are_on_its_volume(two_nodes: Engine) -> None:
    published = {
        mount["source"]: found
        for found in publishers(two_nodes)
        for mount in found.inputs["mounts"]
        if not mount["readOnly"]
    }
    assert len(published) == 3 + 2
    for found in [*instances(two_nodes), *front_ends(two_nodes)]:
        (volume,) = [mount["source"] for mount in found.inputs["mounts"] if mount["type"] == "volume"]
        assert published[volume].urn in found.dependencies, found.name
        assert node_of(published[volume]) == node_of(found)


def test_envoy_is_given_other_files_once_it_and_every_instance_of_its_node_are_well(
    two_nodes: Engine,
) -> None:
    assert len(acceptances(two_nodes)) == 2
    for found in acceptances(two_nodes):
        of_its_node = [
            one
            for one in [*instances(two_nodes), *front_ends(two_nodes), *publishers(two_nodes)]
            if node_of(one) == node_of(found) and ("envoy" in one.name or one in instances(two_nodes))
        ]
        assert {one.urn for one in of_its_node} <= set(found.dependencies)
    # And it is there as soon as it can be: an instance that does not load keeps nobody waiting.
    for found in [*front_ends(two_nodes), *publishers(two_nodes)]:
        assert not {one.urn for one in instances(two_nodes)} & set(found.dependencies), found.name


def test_another_port_is_open_as_soon_as_envoy_is_there_again() -> None:
    """Envoy gets other listeners only after every instance: they are the same whatever is published."""
    ports = {"rest_port": 9000, "grpc_port": 9001, "metrics_port": 9003}
    plans = [
        stacks.plan(config).nodes[0].front_end
        for config in (stacks.one_node(), stacks.changed(stacks.one_node(), "front_end", ports))
    ]
    assert envoy_files(plans[0]) == envoy_files(plans[1])
    assert bootstrap_file(plans[0]) == bootstrap_file(plans[1])


def test_envoy_stops_asking_for_models_that_go_before_they_leave_the_servers_of_its_node(
    two_nodes: Engine,
) -> None:
    of_envoy = {node_of(found): found for found in publishers(two_nodes) if "envoy" in found.name}
    of_pools = [found for found in publishers(two_nodes) if "envoy" not in found.name]
    assert len(of_pools) == 3
    for found in of_pools:
        assert of_envoy[node_of(found)].urn in found.dependencies, found.name


def test_a_publisher_of_a_front_end_says_what_is_known_of_its_node(two_nodes: Engine) -> None:
    found = two_nodes.container("test.gpu-01-envoy-publisher")
    labels = {pair["label"]: pair["value"] for pair in found.inputs["labels"]}
    known = {
        name.removeprefix("tf-serving.node-"): value for name, value in labels.items() if "node-" in name
    }
    assert known == {
        "cpus": "0=0-15,64-79;1=16-31,80-95;2=32-47,96-111",
        "driver": "535.129.03",
        "gpus": ";".join(f"{gpu}=GPU-00000001-aaaa-4aaa-8aaa-{gpu:012d}" for gpu in range(3)),
        "memory-mib": "515000",
        "numa": "0=0;1=0;2=1",
    }


def test_no_input_is_computed_from_a_container(two_nodes: Engine) -> None:
    # Else a container that is replaced changes another one, which is then replaced as well.
    for found in two_nodes.resources:
        sources = {two_nodes.by_urn(urn).type for urns in found.input_dependencies.values() for urn in urns}
        assert CONTAINER not in sources, found.name
        assert computed("") not in repr(found.inputs), found.name
        assert computed("") not in repr(found.outputs), found.name


def test_every_image_is_pulled_to_its_node_before_a_container_of_it_is_touched(two_nodes: Engine) -> None:
    images = {found.name: found for found in two_nodes.of_type(REMOTE_IMAGE)}
    assert {name: found.inputs for name, found in images.items()} == {
        f"{node}-{role}-image": {"name": image, "keepLocally": True}
        for node in ("gpu-01", "gpu-02")
        for role, image in (
            ("server", "tensorflow/serving:2.14.1-gpu"),
            ("envoy", "envoyproxy/envoy:v1.40.0"),
        )
    }
    for found in two_nodes.of_type(CONTAINER):
        role = "envoy" if "-envoy-" in found.name else "server"
        image = images[f"{node_of(found)}-{role}-image"]
        assert image.urn in found.dependencies, found.name
        assert image.provider == found.provider
        assert found.inputs["image"] == image.inputs["name"]


def test_nothing_reads_from_an_image(two_nodes: Engine) -> None:
    # Else a pull that says something new replaces containers.
    for found in two_nodes.resources:
        sources = {two_nodes.by_urn(urn).type for urns in found.input_dependencies.values() for urn in urns}
        assert REMOTE_IMAGE not in sources, found.name


def test_a_part_of_a_gpu_is_asked_for_by_its_own_uuid(deploy: Deploy) -> None:
    engine = deploy(program(stacks.settings(stacks.with_mig())))
    (request,) = engine.container("test.gpu-01-gpu0-mig1").inputs["deviceRequests"]
    assert request["deviceIds"] == [stacks.mig_uuid(1)]
    assert engine.container("test.gpu-01-gpu0-mig1").inputs["cpuSet"] == "8-15"


def test_an_instance_with_all_gpus_asks_for_each_by_uuid(deploy: Deploy) -> None:
    engine = deploy(program(stacks.settings(stacks.with_all_gpus())))
    (found,) = instances(engine)
    (request,) = found.inputs["deviceRequests"]
    assert request["deviceIds"] == [stacks.uuid(gpu) for gpu in range(4)]
    assert found.inputs["cpuSet"] == "0-127"


def test_an_original_beside_an_optimized_form_is_mounted_and_waited_for(deploy: Deploy) -> None:
    engine = deploy(program(stacks.settings(stacks.optimized("fp16"))))
    found = engine.container("test.gpu-01-gpu0").inputs
    assert {mount["target"]: mount["source"] for mount in found["mounts"] if mount["type"] == "bind"} == {
        "/models/resnet50": "/srv/models/resnet50_fp16",
        "/models/resnet50_original": "/srv/models/resnet50",
    }
    texts = engine.files(engine.container("test.gpu-01-gpu0")).values()
    assert any("#: model resnet50_original /models/resnet50_original\n" in text for text in texts)


def test_each_node_has_its_own_front_end_and_url(two_nodes: Engine) -> None:
    assert sorted(found.inputs["name"] for found in front_ends(two_nodes)) == [
        "test.gpu-01-envoy",
        "test.gpu-02-envoy",
    ]
    assert two_nodes.exports["rest_urls"] == ["http://gpu-01.example.com:8080", "http://10.0.0.2:8080"]
    assert two_nodes.exports["grpc_targets"] == ["gpu-01.example.com:8500", "10.0.0.2:8500"]


def test_the_deployment_registers_the_outputs_that_it_offers(two_nodes: Engine) -> None:
    deployment = two_nodes.one("tf-serving:deployment:ServingDeployment", "serving")
    assert set(deployment.outputs or {}) == set(two_nodes.exports) == set(StackOutputs.model_fields)


def test_a_consumer_reads_back_what_went_through_the_engine(two_nodes: Engine) -> None:
    # The engine keeps no None and knows no whole numbers: 1 comes back as 1.0.
    handed_over = two_nodes.one("tf-serving:deployment:ServingDeployment", "serving").outputs
    read = StackOutputs.model_validate(handed_over)
    assert read == StackOutputs.model_validate(two_nodes.exports)
    assert [model.max_batch_size for model in read.models] == [32, None, None]


def test_a_pool_without_batching_gets_no_batching_file(two_nodes: Engine) -> None:
    assert [found.name for found in two_nodes.of_type("tf-serving:batching:BatchingConfig")] == [
        "main-batching"
    ]
    files = two_nodes.files(two_nodes.container("test.gpu-02-gpu2"))
    assert [re.sub(r"-\w{12}\.", ".", file) for file in sorted(files)] == [
        "/config/models.config",
        "/config/monitoring.config",
    ]


def test_fixed_addresses_are_inside_the_declared_networks(two_nodes: Engine) -> None:
    attached = {
        found.inputs["name"]: [
            (network["name"], network["ipv4Address"]) for network in found.inputs["networksAdvanced"]
        ]
        for found in two_nodes.of_type(CONTAINER)
    }
    assert attached["test.gpu-01-gpu2"] == [("test-serving", "172.29.80.24")]
    assert attached["test.gpu-02-envoy"] == [
        ("test-serving", "172.29.80.2"),
        ("test-front", "172.29.80.130"),
    ]


# In the state of everybody's stacks: another token or name is another resource, unless aliased.
URNS = {
    "pulumi:pulumi:Stack$tf-serving:deployment:ServingDeployment::serving",
    "tf-serving:deployment:ServingDeployment$tf-serving:batching:BatchingConfig::main-batching",
    "tf-serving:deployment:ServingDeployment$tf-serving:gpu_node:GpuNode::local",
    f"tf-serving:deployment:ServingDeployment${CONFIG}::local-main-config",
    f"{CONFIG}${VOLUME}::local-main-config-volume",
    f"{CONFIG}${CONTAINER}::local-main-config-publisher",
    "tf-serving:gpu_node:GpuNode$pulumi:providers:docker::local-docker",
    "tf-serving:gpu_node:GpuNode$docker:index/remoteImage:RemoteImage::local-server-image",
    "tf-serving:gpu_node:GpuNode$docker:index/remoteImage:RemoteImage::local-envoy-image",
    "tf-serving:gpu_node:GpuNode$docker:index/network:Network::local-serving",
    "tf-serving:gpu_node:GpuNode$docker:index/network:Network::local-front",
    "tf-serving:deployment:ServingDeployment$tf-serving:envoy:EnvoyFrontEnd::local-envoy",
    f"{FRONT_END}${CONTAINER}::local-envoy-proxy",
    f"{FRONT_END}${CONTAINER}::local-envoy-acceptance",
    f"{FRONT_END}${CONFIG}::local-envoy-config",
    f"{CONFIG}${VOLUME}::local-envoy-config-volume",
    f"{CONFIG}${CONTAINER}::local-envoy-config-publisher",
    *(
        urn
        for gpu in range(4)
        for urn in (
            f"tf-serving:tf_serving:TfServingInstance${CONTAINER}::local-gpu{gpu}-drain",
            f"tf-serving:deployment:ServingDeployment$tf-serving:tf_serving:TfServingInstance::local-gpu{gpu}",
            f"tf-serving:tf_serving:TfServingInstance${CONTAINER}::local-gpu{gpu}-server",
        )
    ),
}


def test_urns_are_those_that_are_in_users_state(local: Engine) -> None:
    prefix = "urn:pulumi:test::tf-serving::"
    assert {found.urn.removeprefix(prefix) for found in local.resources} == URNS
