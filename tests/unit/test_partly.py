"""One run tells all it can: rules between parts run on what is right, beside the mistakes of the rest."""

import pytest

from tests import stacks
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
