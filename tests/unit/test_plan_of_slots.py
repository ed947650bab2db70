"""Plans beyond one pool on whole GPUs: MIG, sharing, all GPUs, faster forms of models, former names."""

import copy
from collections.abc import Callable

import pytest

from components.plan import InstancePlan
from tests import stacks
from tests.stacks import changed, mig_uuid, one_node, optimized, plan, two_nodes


def by_name(config: stacks.Config) -> dict[str, InstancePlan]:
    return {instance.name: instance for instance in plan(config).instances}


def addresses(config: stacks.Config) -> dict[str, str]:
    return {instance.name: str(instance.address) for instance in plan(config).instances}


def test_each_part_of_a_gpu_is_a_slot_with_its_own_uuid_cpus_and_address() -> None:
    found = by_name(stacks.with_mig())
    assert list(found) == [
        "gpu-01-gpu0-mig0",
        "gpu-01-gpu0-mig1",
        "gpu-01-gpu1",
        "gpu-01-gpu2",
        "gpu-01-gpu3",
    ]
    second = found["gpu-01-gpu0-mig1"]
    assert (second.slot.uuid, second.cpus, second.slot.memory_mib) == (mig_uuid(1), "8-15", 40192)
    assert (second.container, second.pool) == ("test.gpu-01-gpu0-mig1", "small")
    assert dict(second.labels)["tf-serving.gpu"] == mig_uuid(1)
    assert list(addresses(stacks.with_mig()).values()) == [
        f"172.29.80.{host}" for host in (10, 11, 17, 24, 31)
    ]


def test_cutting_up_one_gpu_moves_no_instance_of_another() -> None:
    whole, cut = addresses(one_node()), addresses(stacks.with_mig())
    kept = ("gpu-01-gpu1", "gpu-01-gpu2", "gpu-01-gpu3")
    assert {name: cut[name] for name in kept} == {name: whole[name] for name in kept}


def test_pools_that_share_a_slot_are_told_apart_by_their_names_and_addresses() -> None:
    names = ["gpu-01-gpu0-main", "gpu-01-gpu0-text", "gpu-01-gpu1-main", "gpu-01-gpu1-text"]
    assert list(addresses(stacks.sharing())) == names
    assert len(set(addresses(stacks.sharing()).values())) == 4
    found = by_name(stacks.sharing())
    assert found["gpu-01-gpu0-main"].slot == found["gpu-01-gpu0-text"].slot


def alone(config: stacks.Config) -> stacks.Config:
    """Its first pool as it was before the others came to share its slots."""
    return stacks.without(config | {"pools": config["pools"][:1]}, "pools[0].sharing")


def with_third_pool(config: stacks.Config) -> stacks.Config:
    third = copy.deepcopy(config["pools"][1]) | {
        "name": "audio",
        "models": [{"name": "tts", "path": "/srv/models/tts"}],
    }
    for pool in (*config["pools"], third):
        pool |= {"gpu_memory": {"fraction": 0.2}, "memory": {"container_mib": 8192}}
    return config | {"pools": [third, *config["pools"]]}


def test_sharing_that_is_turned_on_takes_no_address_of_what_is_deployed() -> None:
    # What is new is made before what is gone is removed.
    before, after = addresses(alone(stacks.sharing())), addresses(stacks.sharing())
    assert not set(before.values()) & set(after.values())


@pytest.mark.parametrize(
    "edit",
    [
        with_third_pool,
        lambda config: changed(config, "pools[0].slots[0].gpus", [1]),
        lambda config: changed(config, "nodes[0].gpus", config["nodes"][0]["gpus"][:2]),
        lambda config: changed(config, "nodes[0].gpus[3].index", 15),
        lambda config: changed(stacks.without(config, "pools[0].sharing"), "pools[0].slots[0].gpus", [2]),
        lambda config: config | {"pools": config["pools"][::-1]},
    ],
)
def test_an_edit_of_another_instance_moves_none_that_shares_a_slot(
    edit: Callable[[stacks.Config], stacks.Config],
) -> None:
    before, after = addresses(stacks.sharing()), addresses(edit(stacks.sharing()))
    kept = before.keys() & after.keys()
    assert "gpu-01-gpu1-text" in kept
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}


def test_each_of_two_pools_that_share_slots_is_rolled_on_its_own() -> None:
    assert {name: found.follows for name, found in by_name(stacks.sharing()).items()} == {
        "gpu-01-gpu0-main": None,
        "gpu-01-gpu0-text": None,
        "gpu-01-gpu1-main": "gpu-01-gpu0-main",
        "gpu-01-gpu1-text": "gpu-01-gpu0-text",
    }


@pytest.mark.parametrize(("gpus", "pools"), [(1, 53), (4, 20), (16, 6)])
def test_however_many_pools_share_no_address_is_given_twice(gpus: int, pools: int) -> None:
    cards = [{"index": g, "uuid": stacks.uuid(g), "model": "a100-80g"} for g in range(gpus)]
    config = changed(stacks.sharing(), "nodes[0].gpus", cards)
    main = config["pools"][0]
    main |= {
        "gpu_memory": {"fraction": 0.005},
        "memory": {"container_mib": 64},
        "slots": [{"node": "gpu-01", "gpus": list(range(gpus))}],
    }
    config["pools"] = [
        copy.deepcopy(main) | {"name": f"p{n}", "models": [{"name": f"m{n}", "path": "/srv/models/m"}]}
        for n in range(pools)
    ]
    found = addresses(config)
    assert len(found) == len(set(found.values())) == gpus * pools
    assert not set(found.values()) & {f"172.29.80.{10 + 7 * g}" for g in range(gpus)}
    (node,) = plan(config).nodes
    taken = {node.serving_network.gateway, node.front_end.serving_address}
    publishers = {str(config.address) for config in node.configs}
    assert len(publishers) == pools
    assert not publishers & {*found.values(), *map(str, taken)}
    assert not taken & {instance.address for instance in node.instances}
    assert all(instance.address in node.serving_network.subnet for instance in node.instances)


def test_one_instance_with_all_gpus_has_their_uuids_and_the_cpus_beside_them() -> None:
    (instance,) = plan(stacks.with_all_gpus()).instances
    assert instance.name == "gpu-01-gpu0"
    assert [slot.uuid for slot in instance.slots] == [stacks.uuid(gpu) for gpu in range(4)]
    assert instance.cpus == "0-127"
    assert dict(instance.labels)["tf-serving.gpu"] == ",".join(stacks.uuid(gpu) for gpu in range(4))


def test_one_group_of_slots_is_one_instance_with_all_gpus() -> None:
    groups = [{"node": "gpu-01", "gpus": [1, 0]}, {"node": "gpu-01", "gpus": [3, 2]}]
    found = by_name(changed(stacks.with_all_gpus(), "pools[0].slots", groups))
    assert {name: (i.cpus, i.follows) for name, i in found.items()} == {
        "gpu-01-gpu1": ("0-31,64-95", None),
        "gpu-01-gpu3": ("32-63,96-127", "gpu-01-gpu1"),
    }


def test_an_optimized_form_is_served_under_the_models_name_and_the_original_beside_it() -> None:
    (instance, *_) = plan(optimized("fp16")).instances
    assert [(model.name, model.source, model.target) for model in instance.models] == [
        ("resnet50", "/srv/models/resnet50_fp16", "/models/resnet50"),
        ("resnet50_original", "/srv/models/resnet50", "/models/resnet50_original"),
    ]
    (pool,) = plan(optimized("fp16")).nodes[0].front_end.pools
    assert pool.model_names == ("resnet50", "resnet50_original")


def test_an_original_that_is_not_kept_is_not_served() -> None:
    config = changed(optimized("fp16"), "pools[0].models[0].optimized.keep_original", False)
    (instance, *_) = plan(config).instances
    assert [(model.name, model.source) for model in instance.models] == [
        ("resnet50", "/srv/models/resnet50_fp16")
    ]


def test_an_xla_form_alone_turns_the_compiler_on() -> None:
    flag = "xla_gpu_compilation_enabled"
    assert stacks.arguments(optimized("xla", "tensorflow/serving:2.18.0-gpu"))[flag] == "true"
    assert flag not in stacks.arguments(optimized("fp16", "tensorflow/serving:2.18.0-gpu"))
    assert flag not in stacks.arguments(optimized("tensorrt"))


@pytest.mark.parametrize(
    ("config", "path", "former", "names"),
    [
        (two_nodes(), "nodes[0]", "old", {"gpu-01-gpu0": "old-gpu0", "gpu-01-gpu2": "old-gpu2"}),
        (two_nodes(), "pools[0]", "old", {}),
        (
            stacks.sharing(),
            "pools[1]",
            "old",
            {f"gpu-01-gpu{gpu}-main": f"gpu-01-gpu{gpu}" for gpu in (0, 1)}
            | {f"gpu-01-gpu{gpu}-text": f"gpu-01-gpu{gpu}-old" for gpu in (0, 1)},
        ),
        (
            stacks.sharing(),
            "nodes[0]",
            "old",
            {f"gpu-01-gpu{gpu}-main": f"old-gpu{gpu}-main old-gpu{gpu}" for gpu in (0, 1)}
            | {f"gpu-01-gpu{gpu}-text": f"old-gpu{gpu}-text" for gpu in (0, 1)},
        ),
        (
            changed(stacks.in_staging(stacks.with_mig()), "pools[0].slots[0].gpus", [1]),
            "nodes[0]",
            "old",
            {
                "gpu-01-gpu0-mig0": "old-gpu0-mig0",
                "gpu-01-gpu0-mig1": "old-gpu0-mig1",
                "gpu-01-gpu1": "old-gpu1",
            },
        ),
    ],
)
def test_an_instance_knows_the_names_that_it_may_have_had(
    config: stacks.Config, path: str, former: str, names: dict[str, str]
) -> None:
    found = plan(changed(config, f"{path}.renamed_from", former))
    assert {i.name: " ".join(i.former_names) for i in found.instances if i.former_names} == names
    front_ends = {node.front_end.name: node.front_end.former_name for node in found.nodes}
    assert front_ends["gpu-01-envoy"] == ("old-envoy" if path.startswith("nodes") else None)


def test_networks_are_named_as_the_node_says() -> None:
    (node,) = plan(changed(one_node(), "nodes[0].network_name", "ml")).nodes
    assert (node.serving_network.name, node.front_network.name) == ("ml-serving", "ml-front")
