"""Rules between the parts of a stack file: what each refuses, and what comes close and is accepted."""

from types import FunctionType

import pytest

from components import (
    capacity_rules,
    placement_rules,
    prod_rules,
    release_rules,
    routing_rules,
    rules,
    text_rules,
)
from tests import stacks
from tests.stacks import changed, one_node, refusal, two_nodes

GPU_2 = stacks.uuid(2)
FIRST_SLOT = "pools[0].slots[0].gpus[0]"


def assert_told(config: stacks.Config, starts: list[str]) -> None:
    """Exactly these lines, by how they start; their order is a matter of `test_errors.py`."""
    said = sorted(refusal(config))
    assert [line[: len(start)] for line, start in zip(said, sorted(starts), strict=True)] == sorted(starts)


ONE_NODE = [
    # slots_exist
    (
        "pools[0].slots[0].node",
        "gpu-1",
        [
            "pools[0].slots[0].node: 'gpu-1': no such node; accepted: gpu-01",
            "nodes[0]: 'gpu-01': no pool has",
        ],
    ),
    (
        "pools[0].slots[0].gpus",
        [0, 1, 2, 4],
        ["pools[0].slots[0].gpus[3]: 4: node gpu-01 has no such slot; accepted: 0, 1, 2, 3"],
    ),
    (
        "pools[0].slots[0].gpus",
        [-1],
        ["pools[0].slots[0].gpus[0]: -1: accepted: a GPU's index (0 to 15), or '<gpu>:<part>' of one"],
    ),
    # slots_have_one_owner
    (
        "pools[0].slots[0].gpus",
        [0, 1, 0],
        ["pools[0].slots[0].gpus[2]: 0: slot 0 of gpu-01 is already taken by pools[0].slots[0].gpus[0]"],
    ),
    (
        "pools[0].slots[1]",
        {"node": "gpu-01", "gpus": [3]},
        ["pools[0].slots[1].gpus[0]: 3: slot 3 of gpu-01 is already taken by pools[0].slots[0].gpus[3]"],
    ),
    # memory_fits_the_node
    (
        "nodes[0].memory_mib",
        4 * 98304 + 2048 + 1023,
        ["nodes[0].memory_mib: 396287: its containers may use 4 x 98304 (main) + 2048 (Envoy) = 395264 MiB"],
    ),
    # image_is_known
    (
        "images.server",
        "tensorflow/serving:latest-gpu",
        ["images.server: 'tensorflow/serving:latest-gpu': the tag must name the version, such as"],
    ),
    (
        "images.server",
        "tensorflow/serving:2.15.0-gpu",
        ["images.server: 'tensorflow/serving:2.15.0-gpu': 2.15.0 was never released; use 2.15.1"],
    ),
    (
        "images.server",
        "tensorflow/serving:2.14.9-gpu",
        ["images.server: 'tensorflow/serving:2.14.9-gpu': unknown version; accepted: 2.11.0, 2.11.1, "],
    ),
    (
        "images.server",
        "tensorflow/serving:2.14.1",
        ["images.server: 'tensorflow/serving:2.14.1': has no GPU code; use the tag 2.14.1-gpu"],
    ),
    (
        "images.server",
        "tensorflow/serving:2.14.1-devel",
        ["images.server: 'tensorflow/serving:2.14.1-devel': has no GPU code; use the tag 2.14.1-gpu"],
    ),
    # driver_runs_the_image
    (
        "nodes[0].driver",
        "440.33",
        ["nodes[0].driver: '440.33': tensorflow/serving:2.14.1-gpu carries CUDA 11.8, which needs driver 45"],
    ),
    # relative_paths_are_local
    (
        "pools[0].models[0].path",
        "./models/resnet50",
        ["pools[0].models[0].path: './models/resnet50': is relative to this project, absent on gpu-01"],
    ),
]


@pytest.mark.parametrize(("path", "value", "lines"), ONE_NODE)
def test_a_broken_rule_on_one_node_is_told(path: str, value: object, lines: list[str]) -> None:
    assert_told(changed(one_node(), path, value), lines)


TWO_NODES = [
    # names_are_unique
    ("pools[1].name", "main", ["pools[1].name: 'main': is also pools[0].name"]),
    ("nodes[1].gpus[1].uuid", GPU_2, [f"nodes[1].gpus[1].uuid: '{GPU_2}': is also nodes[0].gpus[2].uuid"]),
    # models_belong_to_one_pool
    (
        "pools[1].models[0].name",
        "resnet50",
        ["pools[1].models[0].name: 'resnet50': is also served by pool main"],
    ),
    # slots_have_one_owner, across pools
    (
        "pools[1].slots[0].gpus",
        [1],
        [f"pools[1].slots[0].gpus[0]: 1: slot 1 of gpu-02 is already taken by {FIRST_SLOT} (pool main)"],
    ),
    # nodes_have_work
    (
        "nodes[2]",
        one_node()["nodes"][0]
        | {
            "name": "gpu-03",
            "address": "gpu-03",
            "docker": {"endpoint": "ssh://gpu-03"},
            "gpus": [{"index": 0, "uuid": stacks.uuid(0, node=3)}],
        },
        ["nodes[2]: 'gpu-03': no pool has a slot on it; add one or remove the node"],
    ),
    # one_node_per_engine
    *(
        (
            "nodes[1].docker.endpoint",
            same,
            [f"nodes[1].docker.endpoint: '{same}': is also that of nodes[0]; one node per Docker Engine"],
        )
        for same in (
            "ssh://deploy@gpu-01.example.com",
            "ssh://gpu-01.example.com",
            "ssh://other@GPU-01.example.com:22",
        )
    ),
    # addresses_are_apart
    (
        "nodes[1].address",
        "gpu-01.example.com",
        ["nodes[1].address: 'gpu-01.example.com': is also nodes[0].address"],
    ),
    (
        "nodes[1].memory_mib",
        2 * 98304 + 4096 + 2048 + 1023,
        ["nodes[1].memory_mib: 203775: its containers may use 2 x 98304 (main) + 1 x 4096 (text) + 2048"],
    ),
]


@pytest.mark.parametrize(("path", "value", "lines"), TWO_NODES)
def test_a_broken_rule_between_nodes_or_pools_is_told(path: str, value: object, lines: list[str]) -> None:
    assert_told(changed(two_nodes(), path, value), lines)


def test_a_node_named_like_another_is_told_wherever_it_is_used() -> None:
    assert "nodes[1].name: 'gpu-01': is also nodes[0].name" in refusal(
        changed(two_nodes(), "nodes[1].name", "gpu-01")
    )


NEAR_MISSES = [
    ("nodes[0].memory_mib", 4 * 98304 + 2048 + 1024),
    ("nodes[0].driver", "450.80.02"),
    ("nodes[0].driver", "450.80.2"),
    ("images.server", "tensorflow/serving:2.15.1-gpu"),
    ("images.server", "tensorflow/serving:2.14.1-devel-gpu"),
    ("images.server", "registry.example.com:5000/serving:2.14.1-gpu@sha256:" + "0f" * 32),
    ("pools[0].slots", [{"node": "gpu-01", "gpus": [0]}, {"node": "gpu-01", "gpus": [3, 2]}]),
    ("pools[0].slots", [{"node": "gpu-01", "gpus": [2]}]),
    ("nodes[0].docker.endpoint", "unix:///run/docker.sock"),
]


@pytest.mark.parametrize(("path", "value"), NEAR_MISSES)
def test_what_comes_close_to_a_broken_rule_is_accepted(path: str, value: object) -> None:
    assert stacks.problems(changed(stacks.in_staging(one_node()), path, value)) == ()


@pytest.mark.parametrize("endpoint", ["default", "unix:///run/docker.sock"])
def test_a_path_in_the_project_is_accepted_where_the_engine_is_on_this_machine(endpoint: str) -> None:
    config = changed(one_node(), "nodes[0].docker.endpoint", endpoint)
    assert stacks.problems(changed(config, "pools[0].models[0].path", "./models/resnet50")) == ()


def test_a_path_in_the_project_is_accepted_for_a_pool_that_has_no_slot_on_the_remote_node() -> None:
    assert stacks.problems(changed(two_nodes(), "pools[1].models[0].path", "./models/bert")) == ()


def test_the_same_gpu_index_on_two_nodes_is_two_slots() -> None:
    taken = [(slot["node"], gpu) for slot in two_nodes()["pools"][0]["slots"] for gpu in slot["gpus"]]
    assert ("gpu-02", 0) in taken
    assert ("gpu-01", 0) in taken
    assert stacks.problems(two_nodes()) == ()


def test_nodes_on_different_engines_may_use_the_same_subnet() -> None:
    assert two_nodes()["nodes"][0]["subnet"] == two_nodes()["nodes"][1]["subnet"]
    assert stacks.problems(two_nodes()) == ()


def test_a_driver_is_checked_against_the_cuda_of_its_image() -> None:
    config = changed(one_node(), "images.server", "tensorflow/serving:2.15.1-gpu")
    assert stacks.problems(changed(config, "nodes[0].driver", "525.60.13")) == ()
    (said,) = refusal(changed(config, "nodes[0].driver", "525.60.12"))
    assert said.endswith("carries CUDA 12.2, which needs driver 525.60.13 or newer")


def test_a_node_without_a_driver_runs_any_image() -> None:
    config = changed(one_node(), "images.server", "tensorflow/serving:2.20.0-gpu")
    assert stacks.problems(changed(config, "nodes[0].driver", None)) == ()


MODULES = (placement_rules, routing_rules, release_rules, capacity_rules, text_rules, prod_rules)


def test_every_rule_of_the_modules_is_in_the_list() -> None:
    found: list[object] = [
        value
        for module in MODULES
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__ and name[0] != "_"
    ]
    helpers = (placement_rules.placements, text_rules.texts)
    listed = [*rules.RULES, *rules.TEXT_RULES, *rules.PROD_RULES]
    assert [rule for rule in found if rule not in helpers] == listed
