"""The Plan: which containers there are, where each sits, what it is told; the same on any machine."""

from ipaddress import IPv4Address, IPv4Network

import pytest

from components.plan import Plan, make_plan
from tests import stacks
from tests.stacks import changed, in_staging, one_node, plan, two_nodes, without


def names(found: Plan) -> list[str]:
    return [instance.name for instance in found.instances]


def test_each_slot_of_a_pool_becomes_an_instance_on_its_gpu() -> None:
    assert [(i.name, i.container, i.node, i.pool, i.slot.uuid) for i in plan(one_node()).instances] == [
        (f"gpu-01-gpu{gpu}", f"test.gpu-01-gpu{gpu}", "gpu-01", "main", stacks.uuid(gpu)) for gpu in range(4)
    ]


def test_a_gpu_that_no_pool_takes_gets_no_instance() -> None:
    assert names(plan(two_nodes())) == [
        "gpu-01-gpu0",
        "gpu-01-gpu2",
        "gpu-02-gpu0",
        "gpu-02-gpu1",
        "gpu-02-gpu2",
    ]


def test_an_address_follows_from_the_gpu_alone() -> None:
    addresses = {i.name: i.address for i in plan(two_nodes()).instances}
    assert addresses == {
        "gpu-01-gpu0": IPv4Address("172.29.80.10"),
        "gpu-01-gpu2": IPv4Address("172.29.80.24"),
        "gpu-02-gpu0": IPv4Address("172.29.80.10"),
        "gpu-02-gpu1": IPv4Address("172.29.80.17"),
        "gpu-02-gpu2": IPv4Address("172.29.80.24"),
    }
    moved = changed(two_nodes(), "pools[0].slots", [{"node": "gpu-01", "gpus": [1, 2]}])
    assert {i.name: i.address for i in plan(moved).instances} == {
        "gpu-01-gpu1": IPv4Address("172.29.80.17"),
        "gpu-01-gpu2": addresses["gpu-01-gpu2"],
        "gpu-02-gpu2": addresses["gpu-02-gpu2"],
    }


def test_the_order_in_which_gpus_are_written_changes_nothing() -> None:
    shuffled = one_node()
    shuffled["nodes"][0]["gpus"].reverse()
    assert names(plan(shuffled)) == names(plan(one_node()))


def test_a_renamed_pool_renames_no_container() -> None:
    renamed = changed(one_node(), "pools[0].name", "vision")
    assert [i.container for i in plan(renamed).instances] == [i.container for i in plan(one_node()).instances]


def test_a_pool_rolls_one_at_a_time_in_the_slot_order_of_the_file_across_nodes() -> None:
    found = plan(two_nodes())
    assert {i.name: i.follows for i in found.instances} == {
        "gpu-02-gpu1": None,
        "gpu-02-gpu0": "gpu-02-gpu1",
        "gpu-01-gpu2": "gpu-02-gpu0",
        "gpu-01-gpu0": "gpu-01-gpu2",
        "gpu-02-gpu2": None,
    }


def test_in_rollout_order_each_instance_comes_once_and_after_the_one_it_follows() -> None:
    found = plan(two_nodes())
    order = [instance.name for instance in found.in_rollout_order()]
    assert sorted(order) == sorted(names(found))
    for instance in found.instances:
        if instance.follows:
            assert order.index(instance.follows) < order.index(instance.name)


def test_the_networks_of_a_node_are_the_halves_of_its_subnet() -> None:
    (node,) = plan(one_node()).nodes
    serving, front = node.serving_network, node.front_network
    assert (serving.name, front.name) == ("test-serving", "test-front")
    assert (serving.subnet, front.subnet) == (IPv4Network("172.29.80.0/25"), IPv4Network("172.29.80.128/25"))
    assert (serving.gateway, front.gateway) == (IPv4Address("172.29.80.1"), IPv4Address("172.29.80.129"))
    assert node.front_end.serving_address == IPv4Address("172.29.80.2")
    assert node.front_end.front_address == IPv4Address("172.29.80.130")


@pytest.mark.parametrize("subnet", ["172.29.80.0/24", "10.0.0.0/8", "192.168.0.0/16"])
def test_every_address_of_a_full_node_is_its_own_and_in_its_network(subnet: str) -> None:
    config = changed(in_staging(one_node()), "nodes[0].subnet", subnet)
    config["nodes"][0]["gpus"] = [{"index": gpu, "uuid": stacks.uuid(gpu)} for gpu in range(16)]
    config["pools"][0]["slots"] = [{"node": "gpu-01", "gpus": list(range(16))}]
    config["pools"][0]["memory"]["container_mib"] = 1024
    (node,) = plan(config).nodes
    serving = [
        *(i.address for i in node.instances),
        node.front_end.serving_address,
        node.serving_network.gateway,
    ]
    assert len(set(serving)) == 18
    assert all(address in node.serving_network.subnet for address in serving)
    assert node.serving_network.subnet.broadcast_address not in serving
    assert node.front_end.front_address in node.front_network.subnet
    assert node.front_end.front_address != node.front_network.gateway


def test_each_node_has_a_front_end_over_its_own_instances_alone() -> None:
    pools = {
        node.name: {pool.name: [str(e.address) for e in pool.endpoints] for pool in node.front_end.pools}
        for node in plan(two_nodes()).nodes
    }
    assert pools == {
        "gpu-01": {"main": ["172.29.80.10", "172.29.80.24"]},
        "gpu-02": {"main": ["172.29.80.10", "172.29.80.17"], "text": ["172.29.80.24"]},
    }


def test_a_front_end_knows_the_models_of_its_pools() -> None:
    front_end = plan(two_nodes()).nodes[1].front_end
    assert [(pool.name, pool.model_names) for pool in front_end.pools] == [
        ("main", ("resnet50",)),
        ("text", ("bert", "tagger")),
    ]


def test_threads_are_derived_from_the_batch_where_they_are_not_given() -> None:
    threads = plan(one_node()).instances[0].threads
    assert (threads.grpc_max, threads.rest, threads.intra_op, threads.inter_op) == (64, 64, None, None)


def test_a_small_batch_still_gets_sixteen_threads() -> None:
    config = changed(one_node(), "pools[0].batching", {"max_batch_size": 4, "batch_timeout_micros": 1})
    assert plan(config).instances[0].threads.grpc_max == 16


def test_threads_that_are_given_win_and_without_batching_the_server_decides() -> None:
    given = changed(one_node(), "pools[0].threads", {"grpc_max": 100})
    assert (plan(given).instances[0].threads.grpc_max, plan(given).instances[0].threads.rest) == (100, 64)
    threads = plan(without(in_staging(one_node()), "pools[0].batching")).instances[0].threads
    assert (threads.grpc_max, threads.rest) == (None, None)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("/srv/models/resnet50", "/srv/models/resnet50"),
        ("./models/resnet50", f"{stacks.PROJECT_FOLDER}/models/resnet50"),
        ("./a/./b", f"{stacks.PROJECT_FOLDER}/a/b"),
    ],
)
def test_a_models_folder_is_found_on_the_node(path: str, source: str) -> None:
    config = changed(one_node(), "nodes[0].docker.endpoint", "default")
    (model,) = plan(changed(config, "pools[0].models[0].path", path)).instances[0].models
    assert (model.source, model.target) == (source, "/models/resnet50")


def test_the_stack_is_in_every_name_that_the_engine_sees() -> None:
    found = plan(two_nodes(), stack="qa")
    seen = {
        *(instance.container for instance in found.instances),
        *(node.front_end.container for node in found.nodes),
    }
    assert len(seen) == 5 + 2
    assert all(name.startswith("qa.") for name in seen)
    # Each node's engine has one of either, and a renamed node keeps them.
    assert {node.serving_network.name for node in found.nodes} == {"qa-serving"}
    assert {node.front_network.name for node in found.nodes} == {"qa-front"}


def test_labels_say_whose_a_container_is() -> None:
    found = plan(one_node())
    assert dict(found.instances[1].labels) == {
        "tf-serving.stack": "test",
        "tf-serving.node": "gpu-01",
        "tf-serving.role": "instance",
        "tf-serving.instance": "gpu-01-gpu1",
        "tf-serving.gpu": stacks.uuid(1),
        "tf-serving.pool": "main",
        "tf-serving.slot": "gpu1",
        "tf-serving.models": "resnet50",
        "tf-serving.owner": "ml-platform",
        "tf-serving.load-timeout-s": "600",
    }
    assert dict(found.nodes[0].front_end.labels)["tf-serving.owner"] == "ml-platform"
    assert "tf-serving.owner" not in dict(found.nodes[0].network_labels)
    assert dict(found.nodes[0].front_end.labels)["tf-serving.role"] == "front-end"
    assert list(found.instances[1].labels) == sorted(found.instances[1].labels)


def test_a_label_names_every_model_and_part_and_what_gives_up_isolation() -> None:
    text = dict(plan(two_nodes()).instances[-1].labels)
    assert (text["tf-serving.models"], text["tf-serving.load-timeout-s"]) == ("bert,tagger", "90")
    assert dict(plan(stacks.with_mig()).instances[1].labels)["tf-serving.slot"] == "gpu0-mig1"
    everything = dict(plan(stacks.with_all_gpus()).instances[0].labels)
    assert everything["tf-serving.slot"] == "gpu0,gpu1,gpu2,gpu3"
    assert everything["tf-serving.all-gpus"] == "true"
    assert dict(plan(stacks.sharing()).instances[0].labels)["tf-serving.sharing"] == "true"
    assert not {"tf-serving.all-gpus", "tf-serving.sharing"} & set(text)


def test_the_owner_is_the_stack_where_it_is_not_said() -> None:
    config = stacks.without(one_node() | {"environment": "staging"}, "owner")
    assert dict(plan(config, stack="qa").instances[0].labels)["tf-serving.owner"] == "qa"


def test_the_same_settings_give_the_same_plan() -> None:
    assert plan(two_nodes()) == plan(two_nodes())


def test_settings_that_skipped_the_rules_give_no_plan() -> None:
    settings = stacks.settings(one_node())
    images = settings.images.model_copy(update={"server": "tensorflow/serving:latest-gpu"})
    unchecked = settings.model_copy(update={"images": images})
    with pytest.raises(ValueError, match="tensorflow/serving:latest-gpu names no version"):
        make_plan(unchecked, stack="test", project_folder="/")


def test_a_thousand_nodes_are_planned_in_full() -> None:
    config = in_staging(one_node())
    node, pool = config["nodes"][0], config["pools"][0]
    config["nodes"] = [
        node
        | {
            "name": f"gpu-{n:04d}",
            "address": f"gpu-{n:04d}",
            "docker": {"endpoint": f"ssh://gpu-{n:04d}"},
            "gpus": [{"index": gpu, "uuid": stacks.uuid(gpu, node=n)} for gpu in range(4)],
        }
        for n in range(1000)
    ]
    pool["slots"] = [{"node": f"gpu-{n:04d}", "gpus": [3, 1, 0, 2]} for n in range(1000)]
    found = plan(config)
    assert len(found.nodes) == 1000
    assert len(found.instances) == len(set(names(found))) == 4000
    assert len({instance.container for instance in found.instances}) == 4000
    assert len({instance.slot.uuid for instance in found.instances}) == 4000
    assert len(list(found.in_rollout_order())) == 4000
    assert [instance.follows for instance in found.instances].count(None) == 1
    for planned in found.nodes:
        (endpoints,) = [pool.endpoints for pool in planned.front_end.pools]
        assert [e.address for e in endpoints] == [i.address for i in planned.instances]
        assert len({e.address for e in endpoints} | {planned.front_end.serving_address}) == 5


def test_facts_of_a_node_are_labels_of_what_stages_envoys_files() -> None:
    labels = dict(plan(stacks.with_mig()).nodes[0].front_end.config.labels)
    assert labels["tf-serving.role"] == "publisher"
    gpus = labels["tf-serving.node-gpus"].split(";")
    assert gpus[:2] == [f"0:0={stacks.mig_uuid(0)}", f"0:1={stacks.mig_uuid(1)}"]
    assert "tf-serving.node-driver" not in dict(
        plan(stacks.without(one_node(), "nodes[0].driver")).nodes[0].front_end.config.labels
    )


def test_what_brings_envoy_its_files_has_addresses_that_no_instance_has() -> None:
    for node in plan(two_nodes()).nodes:
        own = [node.front_end.serving_address, node.front_end.config.address]
        own += [node.front_end.acceptance_address, *(instance.address for instance in node.instances)]
        assert len(set(own)) == len(own)
        assert all(address in node.serving_network.subnet for address in own)
