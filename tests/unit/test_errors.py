"""Messages: path, value, what is accepted; in the order of the file; no secret and no jargon."""

import pytest

from components.errors import Problem, RuleViolations, SettingsError, raise_if_any, unknown_key
from tests import stacks


def test_a_problem_is_path_value_message() -> None:
    assert str(Problem("pools[0].name", "is also pools[1].name", "main")) == (
        "pools[0].name: 'main': is also pools[1].name"
    )


def test_a_problem_without_a_value_shows_none() -> None:
    assert str(Problem("nodes", "is required")) == "nodes: is required"


def test_none_is_a_value_that_is_shown() -> None:
    assert str(Problem("nodes", "is no list", None)) == "nodes: None: is no list"


def test_a_long_value_is_cut() -> None:
    said = str(Problem("nodes", "is no list", "x" * 500))
    assert said == f"nodes: '{'x' * 57}...{'x' * 58}': is no list"


def test_an_error_counts_its_problems_and_says_that_nothing_was_changed() -> None:
    one = SettingsError("Pulumi.qa.yaml", [Problem("a", "b")])
    two = SettingsError("Pulumi.qa.yaml", [Problem("a", "b"), Problem("c", "d", 1)])
    assert str(one) == "Pulumi.qa.yaml: 1 problem; nothing was changed\n  - a: b"
    assert str(two) == "Pulumi.qa.yaml: 2 problems; nothing was changed\n  - a: b\n  - c: 1: d"


def test_no_problem_raises_nothing() -> None:
    raise_if_any(iter(()))


def test_every_problem_is_raised() -> None:
    problems = [Problem("a", "b"), Problem("c", "d")]
    with pytest.raises(RuleViolations) as caught:
        raise_if_any(iter(problems))
    assert caught.value.problems == tuple(problems)


def test_the_nearest_key_is_offered_with_all_that_are_accepted() -> None:
    assert (
        unknown_key("slot", ["name", "slots"]) == "unknown key; did you mean slots? (accepted: name, slots)"
    )


def test_a_key_like_no_other_gets_no_guess() -> None:
    assert unknown_key("colour", ["name", "slots"]) == "unknown key (accepted: name, slots)"
    assert unknown_key("colour", []) == "unknown key"


def in_one_node(path: str) -> stacks.Config:
    config = stacks.one_node()
    for parent in ("front_end", "rollout", "pools[0].gpu_memory", "pools[0].threads"):
        config = stacks.changed(config, parent, {})
    config = stacks.changed(config, "pools[0].models[0].versions", {"latest": 1})
    return stacks.changed(config, path, 1)


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("node", "nodes"),
        ("nodes[0].adress", "address"),
        ("nodes[0].docker.end_point", "endpoint"),
        ("nodes[0].gpus[2].uid", "uuid"),
        ("images.servers", "server"),
        ("pools[0].batch", "batching"),
        ("pools[0].models[0].version", "versions"),
        ("pools[0].models[0].versions.last", "latest"),
        ("pools[0].slots[0].gpu", "gpus"),
        ("pools[0].batching.batch_timeout_us", "batch_timeout_micros"),
        ("pools[0].gpu_memory.allow_grow", "allow_growth"),
        ("pools[0].memory.container_mb", "container_mib"),
        ("pools[0].threads.grpc", "grpc_max"),
        ("front_end.rest-port", "rest_port"),
        ("rollout.stop_timeout", "stop_timeout_s"),
    ],
)
def test_a_misspelt_key_is_told_the_nearest_one_at_every_depth(path: str, nearest: str) -> None:
    (said,) = stacks.refusal(in_one_node(path))
    assert said.startswith(f"{path}: 1: unknown key; did you mean {nearest}? (accepted: ")


def test_an_unknown_key_with_a_dot_in_it_is_told_what_its_own_object_accepts() -> None:
    config = stacks.one_node()
    config["pools"][0]["batching"]["tf.max_batch"] = 1
    (said,) = stacks.refusal(config)
    assert said.startswith("pools[0].batching.tf.max_batch: 1: unknown key")
    assert "(accepted: preset, max_batch_size, batch_timeout_micros, " in said


def test_every_problem_of_a_file_is_told_at_once() -> None:
    config = stacks.one_node()
    config = stacks.changed(config, "nodes[0].gpus[1].uuid", "1")
    config = stacks.changed(config, "nodes[0].memory_mib", 5)
    config = stacks.changed(config, "pools[0].batching.allowed_batch_sizes", [1, 8])
    config = stacks.changed(config, "pools[0].memory.shm_mib", 999999)
    config = stacks.changed(config, "rollout", {"stop": 1})
    config = stacks.without(config, "images.envoy")
    assert [said.partition(": ")[0] for said in stacks.refusal(config)] == [
        "nodes[0].memory_mib",
        "nodes[0].gpus[1].uuid",
        "images.envoy",
        "pools[0].batching.allowed_batch_sizes",
        "pools[0].memory.shm_mib",
        "rollout.stop",
    ]


def test_two_rules_of_one_object_are_both_told() -> None:
    config = stacks.changed(stacks.one_node(), "nodes[0].gpus[1].index", 0)
    config = stacks.changed(config, "nodes[0].gpus[2].cpus", "0-15")
    config = stacks.changed(config, "nodes[0].subnet", "8.8.8.0/24")
    assert [said.partition(": ")[0] for said in stacks.refusal(config)] == [
        "nodes[0].subnet",
        "nodes[0].gpus[1].index",
        "nodes[0].gpus[2].cpus",
    ]


def test_problems_come_in_the_order_of_the_file_not_of_the_schema() -> None:
    good = stacks.one_node()
    upside_down = {key: good[key] for key in reversed(good)}
    upside_down["pools"] = [{key: good["pools"][0][key] for key in reversed(good["pools"][0])}]
    config = stacks.changed(upside_down, "nodes[0].driver", "new")
    config = stacks.changed(config, "pools[0].name", "MAIN")
    config = stacks.changed(config, "pools[0].memory.container_mib", 1)
    config = stacks.without(config, "images.server")
    assert [said.partition(": ")[0] for said in stacks.refusal(config)] == [
        "pools[0].memory.container_mib",
        "pools[0].name",
        "images.server",
        "nodes[0].driver",
    ]


def test_rules_across_the_file_report_in_the_order_of_the_file() -> None:
    config = stacks.changed(stacks.one_node(), "images.server", "tensorflow/serving:2.14.1")
    config = stacks.changed(config, "pools[0].slots[0].gpus", [0, 7])
    config = stacks.changed(config, "nodes[0].memory_mib", 2048)
    assert [said.partition(": ")[0] for said in stacks.refusal(config)] == [
        "nodes[0].memory_mib",
        "images.server",
        "pools[0].slots[0].gpus[1]",
    ]


@pytest.mark.parametrize("key", ["password", "token", "api_key", "secret", "ssh_passphrase", "private_key"])
def test_the_value_of_a_key_that_sounds_secret_is_hidden(key: str) -> None:
    config = stacks.changed(stacks.one_node(), f"nodes[0].docker.{key}", "hunter2")
    (said,) = stacks.refusal(config)
    assert said.startswith(f"nodes[0].docker.{key}: (hidden): unknown key")


@pytest.mark.parametrize(
    "value",
    [
        {"password": "hunter2"},
        {"host": {"users": [{"name": "a", "api_key": "hunter2"}]}},
        [{"token": "hunter2"}],
        "ssh://deploy:hunter2@gpu-01",
        "ssh://deploy:hunter2@gpu-01 and tcp://me:hunter2@x",
    ],
)
def test_a_secret_inside_a_refused_value_is_hidden(value: object) -> None:
    (said,) = stacks.refusal(stacks.changed(stacks.one_node(), "nodes[0].docker.endpoint", value))
    assert said.startswith("nodes[0].docker.endpoint: ")
    assert "(hidden)" in said
    assert "hunter2" not in said


def test_a_user_name_in_an_endpoint_is_no_secret() -> None:
    (said,) = stacks.refusal(
        stacks.changed(stacks.one_node(), "nodes[0].docker.endpoint", "tcp://deploy@gpu-01")
    )
    assert "tcp://deploy@gpu-01" in said


JARGON = ("pydantic", "For further information", "type=", "Value error", "input_value", "Traceback", "[key]")


@pytest.mark.parametrize("value", [None, True, 0, -1, 2.5, "", "x", [], [1], {}, {"a": 1}, 10**30])
@pytest.mark.parametrize(
    "path",
    [
        "nodes",
        "nodes[0].docker",
        "nodes[0].subnet",
        "nodes[0].gpus[0].cpus",
        "images.server",
        "pools[0].models[0].path",
        "pools[0].models[0].versions",
        "pools[0].models[0].labels",
        "pools[0].batching",
        "pools[0].batching.allowed_batch_sizes",
        "front_end",
    ],
)
def test_no_wrong_value_is_answered_with_jargon(path: str, value: object) -> None:
    config = stacks.changed(stacks.in_staging(stacks.one_node()), path, value)
    problems = stacks.problems(config)
    assert not [word for word in JARGON for problem in problems if word in str(problem)]
    assert all(problem.path.startswith(path) for problem in problems)


def test_a_label_that_is_no_label_is_told_at_its_own_path() -> None:
    config = stacks.changed(stacks.one_node(), "pools[0].models[0].labels", {"can-ary": 1})
    assert stacks.refusal(config) == [
        "pools[0].models[0].labels.can-ary: 'can-ary': accepted: letters, digits and '_', at most 63"
    ]


def test_nothing_that_a_stack_file_holds_moves_the_cursor_of_a_terminal() -> None:
    config = stacks.one_node() | {"\x1b[2Jgone": 1, "\u202eturned": "\x1b[31m"}
    config["nodes"][0]["docker"]["endpoint"] = "\x1b]0;title\x07"
    said = stacks.refusal(config)
    assert [line for line in said if not line.isprintable()] == []
    assert sum("\\x1b[2Jgone: 1: unknown key" in line for line in said) == 1


def test_a_long_key_is_cut_in_the_middle_and_so_is_a_long_value() -> None:
    (said,) = stacks.refusal(stacks.one_node() | {"a" + "k" * 5000 + "z": "b" + "v" * 5000 + "y"})
    key, value, _ = said.split(": ", 2)
    assert (len(key), key[0], key[-1], "..." in key) == (120, "a", "z", True)
    assert (len(value), value[:2], value[-2:], "..." in value) == (120, "'b", "y'", True)
