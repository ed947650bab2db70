"""What goes where: MIG, sharing, all GPUs, prod, former names, addresses; refused, and close to it."""

import copy

import pytest

from tests import stacks
from tests.stacks import changed, one_node, refusal, two_nodes, without


def renamed(path: str, former: str) -> stacks.Config:
    return changed(two_nodes(), f"{path}.renamed_from", former)


def crowd(pools: int) -> stacks.Config:
    """GPU 0 of four shared by that many pools."""
    config = stacks.sharing()
    config["nodes"][0]["gpus"][0]["model"] = "a100-80g"  # room for the CUDA context of each
    main = config["pools"][0]
    main |= {"gpu_memory": {"fraction": 0.001}, "memory": {"container_mib": 64}}
    main["slots"] = [{"node": "gpu-01", "gpus": [0]}]
    config["pools"] = [
        copy.deepcopy(main) | {"name": f"p{n}", "models": [{"name": f"m{n}", "path": "/srv/models/m"}]}
        for n in range(pools)
    ]
    return config


def with_networks(first: str, second: str) -> stacks.Config:
    return changed(changed(two_nodes(), "nodes[0].network_name", first), "nodes[1].network_name", second)


def tcp(endpoint: str) -> dict[str, str]:
    return {"endpoint": endpoint, "cert_path": "/certs"}


ONE_POOL_TWICE = changed(stacks.sharing(), "pools[0].slots[1]", {"node": "gpu-01", "gpus": [0]})

REFUSED = [
    # names_are_unique
    (with_networks("ml", "ml"), ["nodes[1].network_name: 'ml': is also nodes[0].network_name"]),
    (
        changed(
            stacks.with_hardware(),
            "nodes[1]",
            one_node()["nodes"][0] | {"name": "gpu-02", "address": "b", "docker": {"endpoint": "ssh://b"}},
        ),
        [
            *(
                f"nodes[1].gpus[{g}].uuid: '{stacks.uuid(g)}': is also nodes[0].gpu_uuids[{g}]"
                for g in range(4)
            ),
            "nodes[1]: 'gpu-02': no pool has a slot on it",
        ],
    ),
    # slots_exist
    (
        changed(stacks.with_mig(), "pools[0].slots[0].gpus", [0, 1, 2, 3]),
        [
            "pools[0].slots[0].gpus[0]: 0: node gpu-01 has no such slot; accepted: '0:0', '0:1', 1, 2, 3",
        ],
    ),
    (
        changed(stacks.with_mig(), "pools[1].slots[0].gpus", ["0:0", "0:2"]),
        ["pools[1].slots[0].gpus[1]: '0:2': node gpu-01 has no such slot; accepted: '0:0', '0:1', 1, 2, 3"],
    ),
    (
        changed(stacks.with_mig(), "pools[1].slots[0].gpus", ["0:7"]),
        ["pools[1].slots[0].gpus[0]: '0:7': accepted: a GPU's index (0 to 15), or '<gpu>:<part>' of one"],
    ),
    # slots_have_one_owner
    (
        changed(stacks.with_mig(), "pools[1].slots[0].gpus", ["0:1", "0:1"]),
        ["pools[1].slots[0].gpus[1]: '0:1': slot 0:1 of gpu-01 is already taken by pools[1].slots[0]."],
    ),
    (
        without(stacks.sharing(), "pools[1].sharing"),
        [
            f"pools[1].slots[0].gpus[{g}]: {g}: slot {g} of gpu-01 is already taken by "
            f"pools[0].slots[0].gpus[{g}] (pool main); or set sharing: true on both pools"
            for g in (0, 1)
        ],
    ),
    (
        changed(stacks.with_all_gpus(), "pools[0].slots[1]", {"node": "gpu-01", "gpus": [0]}),
        ["pools[0].slots[1].gpus[0]: 0: slot 0 of gpu-01 is already taken by pools[0].slots[0].gpus[0]"],
    ),
    # shared_slots_have_room
    (
        without(stacks.sharing(), "pools[1].gpu_memory"),
        ["pools[1].gpu_memory.fraction: is required: its slots are shared with main, and by default one"],
    ),
    (
        changed(
            changed(stacks.sharing(), "pools[0].gpu_memory.fraction", 0.5),
            "pools[1].gpu_memory.fraction",
            0.46,
        ),
        [
            f"pools[1].gpu_memory.fraction: 0.46: slot {slot} of gpu-01: 0.5 (main) + 0.46 (text) exceeds"
            for slot in (0, 1)
        ],
    ),
    # prod_keeps_instances_apart
    (
        without(stacks.sharing(), "environment"),
        [f"pools[{p}].sharing: True: is refused in prod: give each pool slots of its own" for p in (0, 1)],
    ),
    (
        changed(stacks.with_all_gpus(), "environment", "prod"),
        ["pools[0].all_gpus: True: is refused in prod: one instance a GPU uses all of them"],
    ),
    # models_belong_to_one_pool
    (
        changed(
            changed(two_nodes(), "pools[1].models[0].name", "resnet50_original"),
            "pools[0].models[0].optimized",
            {"kind": "fp16", "path": "/srv/models/half"},
        ),
        ["pools[1].models[0].name: 'resnet50_original': is also served by pool main"],
    ),
    # relative_paths_are_local
    (
        changed(one_node(), "pools[0].models[0].optimized", {"kind": "fp16", "path": "./models/half"}),
        ["pools[0].models[0].optimized.path: './models/half': is relative to this project, absent on gpu-01"],
    ),
    (
        changed(
            changed(one_node(), "nodes[0].docker", tcp("tcp://gpu-01:2376")),
            "pools[0].models[0].path",
            "./models/m",
        ),
        ["pools[0].models[0].path: './models/m': is relative to this project, absent on gpu-01"],
    ),
    # one_node_per_engine
    (
        changed(
            changed(two_nodes(), "nodes[0].docker", tcp("tcp://gpu-01:2376")),
            "nodes[1].docker",
            tcp("tcp://GPU-01:2376"),
        ),
        ["nodes[1].docker.endpoint: 'tcp://GPU-01:2376': is also that of nodes[0]; one node per Docker"],
    ),
    # addresses_are_apart
    (
        changed(two_nodes(), "nodes[1].address", "GPU-01.example.com"),
        ["nodes[1].address: 'gpu-01.example.com': is also nodes[0].address"],
    ),
    # subnets_have_room
    (
        crowd(54),
        ["nodes[0].subnet: '172.29.80.0/24': has no room for 54 instances on shared slots of 54 pools;"],
    ),
    # former_names_are_free
    (
        renamed("nodes[0]", "gpu-02"),
        ["nodes[0].renamed_from: 'gpu-02': is also nodes[1].name; it names what"],
    ),
    (
        renamed("nodes[0]", "gpu-01"),
        ["nodes[0].renamed_from: 'gpu-01': is also nodes[0].name; it names what"],
    ),
    (
        renamed("pools[1]", "main"),
        ["pools[1].renamed_from: 'main': is also pools[0].name; it names what was"],
    ),
    (
        changed(renamed("pools[1]", "old"), "pools[0].renamed_from", "old"),
        ["pools[1].renamed_from: 'old': is also pools[0].renamed_from; it names what was there before"],
    ),
]

ACCEPTED = [
    with_networks("ml", "ml-2"),
    with_networks("gpu-01", "gpu-02"),
    stacks.sharing(),
    stacks.sharing() | {"environment": "local"},
    stacks.with_all_gpus(),
    changed(stacks.sharing(), "pools[1].gpu_memory.fraction", 0.5),
    changed(  # in floating point their sum is a little more than 0.95
        changed(stacks.sharing(), "pools[0].gpu_memory.fraction", 0.15), "pools[1].gpu_memory.fraction", 0.8
    ),
    changed(without(stacks.sharing(), "pools[1].gpu_memory"), "pools[1].slots[0].gpus", [2, 3]),
    changed(stacks.sharing(), "pools[0].slots[0].gpus", [0, 1, 2]),
    changed(stacks.with_mig(), "pools[1].slots[0].gpus", ["0:1"]),
    changed(one_node(), "pools[0].models[0].optimized", {"kind": "fp16", "path": "/srv/models/half"}),
    changed(
        changed(two_nodes(), "nodes[0].docker", tcp("tcp://gpu-01:2376")),
        "nodes[1].docker",
        tcp("tcp://gpu-01:2377"),
    ),
    changed(
        changed(two_nodes(), "nodes[0].docker.endpoint", "ssh://gpu-01:22"),
        "nodes[1].docker.endpoint",
        "ssh://gpu-01:2222",
    ),
    crowd(53),
    renamed("nodes[0]", "gpu-00"),
    renamed("pools[0]", "gpu-01"),
    changed(renamed("pools[0]", "old"), "nodes[0].renamed_from", "old"),
]


@pytest.mark.parametrize(("config", "lines"), REFUSED)
def test_a_placement_that_breaks_a_rule_is_told(config: stacks.Config, lines: list[str]) -> None:
    said = sorted(refusal(config))
    assert [line[: len(start)] for line, start in zip(said, sorted(lines), strict=True)] == sorted(lines)


@pytest.mark.parametrize("config", ACCEPTED)
def test_a_placement_that_comes_close_to_breaking_a_rule_is_accepted(config: stacks.Config) -> None:
    assert stacks.problems(config) == ()


def test_a_pool_cannot_share_a_slot_with_itself() -> None:
    config = changed(stacks.sharing(), "pools[0].slots[1]", {"node": "gpu-01", "gpus": [0]})
    said = refusal(config)
    assert said[0].startswith("pools[0].slots[1].gpus[0]: 0: slot 0 of gpu-01 is already taken by pools[0].")
    assert "sharing" not in said[0]


def test_sharing_is_no_way_out_where_it_is_refused() -> None:
    config = stacks.sharing()
    for pool in config["pools"]:
        pool.pop("sharing", None)
    assert "or set sharing" in "\n".join(refusal(config))
    assert "or set sharing" not in "\n".join(refusal(config | {"environment": "prod"}))
