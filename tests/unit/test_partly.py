"""One run tells all it can: rules between parts run on what is right, beside the mistakes of the rest."""

import pytest

from tests import kubernetes_stacks, stacks
from tests.stacks import changed, one_node, refusal, two_nodes


def three_pools() -> stacks.Config:
    """`main`, `text`, and a third one of that name and on the same slot."""
    config = two_nodes()
    third = {
        "name": "text",
        "models": [{"name": "tts", "path": "/srv/models/tts"}],
        "slots": [{"node": "gpu-02", "gpus": [2]}],
        "unbatched": True,
        "memory": {"container_mib": 4096},
    }
    return config | {"pools": [*config["pools"], third]}


def test_rules_between_pools_are_told_beside_a_mistake_in_another_pool_with_the_places_of_the_file() -> None:
    said = refusal(changed(three_pools(), "pools[0].memory.container_mib", "much"))
    taken = "slot 2 of gpu-02 is already taken by pools[1].slots[0].gpus[0] (pool text)"
    assert said == [
        "pools[0].memory.container_mib: 'much': must be a whole number",
        "pools[2].name: 'text': is also pools[1].name",
        f"pools[2].slots[0].gpus[0]: 2: {taken}",
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("nodes[1].memory_mib", "much"),
        ("nodes[0].gpus[0].uuid", "GPU-0"),
        ("pools[0].memory.container_mib", "much"),
        ("pools[1].models[0].path", "models"),
        ("images.server", "no tag"),
        ("images.envoy", 3),
        ("images", {}),
        ("environment", "production"),
        ("owner", "a b"),
        ("front_end.memory_mib", "much"),
        ("front_end", []),
        ("nodes", {}),
        ("pools", "none"),
        ("rollout.stop_timeout_s", -1),
        ("unheard_of", 1),
    ],
)
def test_nothing_is_told_that_only_follows_from_a_mistake(path: str, value: object) -> None:
    for config in (two_nodes(), stacks.sharing()):
        config |= {"front_end": {}, "rollout": {}}
        if path.startswith(("nodes[1]", "pools[1]")) and len(config["nodes"]) == 1:
            continue
        said = refusal(changed(config, path, value))
        assert all(line.startswith(path) for line in said), said


def test_what_is_missing_is_told_beside_what_breaks_a_rule() -> None:
    old = changed(one_node(), "nodes[0].driver", "440.33")
    assert refusal(stacks.without(old, "pools")) == [*refusal(old), "pools: is required"]


def test_text_that_was_left_in_is_told_beside_any_other_mistake() -> None:
    config = changed(one_node(), "pools[0].memory.container_mib", "much")
    config = changed(config, "pools[0].models[0].path", "/srv/<model>")
    config = changed(config, "nodes[0].docker.ssh_options", ["CHANGE_ME"])
    assert refusal(config) == [
        "nodes[0].docker.ssh_options[0]: 'CHANGE_ME': looks like a placeholder that was left in",
        "pools[0].models[0].path: '/srv/<model>': looks like a placeholder that was left in",
        "pools[0].memory.container_mib: 'much': must be a whole number",
    ]


def test_the_rules_of_a_pool_are_told_beside_a_mistake_in_one_of_its_fields() -> None:
    config = changed(one_node(), "pools[0].memory.container_mib", "much")
    config = changed(config, "pools[0].models[1]", {"name": "resnet50", "path": "/srv/models/other"})
    config = changed(config, "pools[0].client_batch_size", 99)
    assert [line.partition(": ")[0] for line in refusal(config)] == [
        "pools[0].models[1].name",
        "pools[0].memory.container_mib",
        "pools[0].client_batch_size",
    ]


def test_the_rules_of_a_node_are_told_beside_a_mistake_in_one_of_its_fields() -> None:
    config = changed(one_node(), "nodes[0].memory_mib", "much")
    config = changed(config, "nodes[0].subnet", "8.8.8.0/24")
    config = changed(config, "nodes[0].gpus[1].cpus", "0-15")
    config = changed(config, "nodes[0].gpus[2].uuid", stacks.uuid(0))
    assert sorted(line.partition(": ")[0] for line in refusal(config)) == [
        "nodes[0].gpus[1].cpus",
        "nodes[0].gpus[2].uuid",
        "nodes[0].memory_mib",
        "nodes[0].subnet",
    ]


def test_rules_of_what_is_inside_an_item_are_told_beside_a_mistake_beside_them() -> None:
    config = changed(one_node(), "pools[0].batching.max_batch_size", "many")
    config = changed(config, "pools[0].batching.enable_large_batch_splitting", True)
    config = changed(config, "front_end", {"rest_port": 8500, "workers": "few"})
    assert refusal(config) == [
        "pools[0].batching.max_batch_size: 'many': must be a whole number",
        "pools[0].batching.max_execution_batch_size: is required with enable_large_batch_splitting",
        "front_end.workers: 'few': must be a whole number",
        "front_end.grpc_port: 8500: is also rest_port",
    ]


@pytest.mark.parametrize(
    ("path", "value", "also", "value_there"),
    [
        # The last size is not that of a maximum that nobody knows.
        ("pools[0].batching.max_batch_size", "64", "pools[0].batching.allowed_batch_sizes", [1, 64]),
        ("pools[0].batching.max_batch_size", "64", "pools[0].client_batch_size", 64),
        ("pools[0].batching", "image", "pools[0].threads", {"grpc_max": 1, "rest": 1}),
        ("nodes[0].share_cpus", "yes", "nodes[0].gpus[1].cpus", "0-15"),
        ("nodes[0].gpus[0].index", "0", "nodes[0].gpus[1].index", 0),
        ("pools[0].models[0].versions.lastest", 3, "pools[0].models[0].labels", {"a": 1, "b": 2, "c": 3}),
        # A slip for the key that would make it right.
        ("nodes[0].share_cpu", True, "nodes[0].gpus[1].cpus", "0-15"),
        ("enviroment", "local", "nodes[0].bind", None),
        ("onwer", "ml-platform", "owner", None),
    ],
)
def test_what_looks_at_a_wrong_value_is_not_told(
    path: str, value: object, also: str, value_there: object
) -> None:
    start = one_node()
    start["pools"][0]["models"][0]["versions"] = {}
    config = changed(changed(start, also, value_there), path, value)
    if ".versions" not in path:
        config = stacks.without(config, "pools[0].models[0].versions")
    said = refusal(config)
    assert [line for line in said if not line.startswith(path)] == []


def test_what_is_not_there_is_no_reason_for_a_finding_but_what_is_said_is() -> None:
    config = stacks.without(one_node(), "nodes[0].gpus[0].uuid")
    config = changed(config, "nodes[0].subnet", "8.8.8.0/24")
    assert refusal(config) == [
        "nodes[0].subnet: '8.8.8.0/24': a private IPv4 network of /24 or larger",
        "nodes[0].gpus[0].uuid: is required",
    ]


def test_rules_of_a_cluster_are_told_beside_mistakes_too() -> None:
    config = changed(kubernetes_stacks.four_gpus(), "pools[0].memory.container_mib", "much")
    config = changed(config, "cluster.render_to", "./rendered")
    config = changed(config, "pools[0].sharing", True)
    config["node_pools"].append(config["node_pools"][0])
    assert [line.partition(": ")[0] for line in refusal(config)] == [
        "cluster.kubeconfig",
        "cluster.context",
        "node_pools[1].name",
        "pools[0].memory.container_mib",
        "pools[0].sharing",
    ]
