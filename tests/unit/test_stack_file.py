"""Stack files as people write them: what YAML makes of a slip is told, never a traceback."""

import json
from pathlib import Path

import pytest
import yaml

from components.errors import SettingsError
from components.settings import Settings
from components.stack_file import (
    accepted_keys,
    load_settings,
    load_stack_file,
    own_values,
    settings_from_pulumi,
)
from tests import stacks

NAME = "Pulumi.test.yaml"


def as_text(config: stacks.Config) -> str:
    values = {f"tf-serving:{key}": value for key, value in config.items()}
    return yaml.safe_dump({"config": values}, sort_keys=False)


GOOD = as_text(stacks.one_node())


def load(tmp_path: Path, text: str | bytes) -> Settings:
    file = tmp_path / NAME
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_stack_file(file)


def refusal(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, text)
    return str(caught.value)


def edited(old: str, new: str) -> str:
    assert GOOD.count(old) >= 1, f"{old!r} is not in the good file"
    return GOOD.replace(old, new, 1)


def test_a_good_file_loads_to_the_same_settings_as_its_values(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD) == stacks.settings(stacks.one_node())


def test_a_byte_order_mark_is_harmless(tmp_path: Path) -> None:
    assert load(tmp_path, b"\xef\xbb\xbf" + GOOD.encode()) == load(tmp_path, GOOD)


def test_anchors_and_merge_keys_are_read(tmp_path: Path) -> None:
    text = edited("      cpus: 0-15,64-79\n", "      cpus: &c 0-15,64-79\n")
    text = text.replace("container_mib: 98304", "<<: {shm_mib: 99}\n      container_mib: 98304")
    loaded = load(tmp_path, text)
    assert loaded.pools[0].memory.shm_mib == 99
    assert loaded.nodes[0].gpus[0].cpus == "0-15,64-79"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "config: is required"),
        ("# nothing but a comment\n", "config: is required"),
        ("- a\n- b\n", "config: is required"),
        ("just words", "config: is required"),
        ("encryptionsalt: v1:abc\n", "config: is required"),
        ("config:\n", "config: is required"),
        ("config: [1, 2]\n", "config: is required"),
        ("config: {}\n", "nodes: is required"),
        ("config: {aws:region: eu-west-1}\n", "nodes: is required"),
        ("config:\n\ttf-serving:nodes: 1\n", "found character '\\t' that cannot start any token"),
        ("config: {a: 1\n", "line 2, column 1"),
        (
            "config: !!python/object:os.system {}\n",
            "the tag tag:yaml.org,2002:python/object:os.system is not",
        ),
        ("config: {tf-serving:nodes: !!set {a, b}}\n", "the tag tag:yaml.org,2002:set is not accepted"),
        ("config: {tf-serving:nodes: !!binary aGk=}\n", "the tag tag:yaml.org,2002:binary is not"),
        ("config: &a {tf-serving:nodes: *a}\n", "line 1, column 9: found unconstructable recursive node"),
        ("config: {? [1, 2] : 3}\n", "line 1, column 12: a key must be text, in quotes"),
        ("config: {1: 2}\n", "line 1, column 10: the key 1 must be text, in quotes"),
        ("config: {~: 2}\n", "line 1, column 10: the key ~ must be text, in quotes"),
        ("config: {true: 2}\n", "line 1, column 10: the key true must be text, in quotes"),
        ("config: {a: 1}\n---\nconfig: {}\n", "expected a single document"),
        ("config: {a: \0}\n", "special characters are not allowed"),
        ("config: {a: !!int x}\n", "invalid literal for int"),
        ("config: " + "[" * 5000, "nested too deeply"),
        ("config: {tf-serving:nodes: " + "[" * 300 + "]" * 300 + "}", "nested too deeply"),
        ("config: {tf-serving:nodes: " + "9" * 5000 + "}", "nodes"),
        (b"\xff\xfec\x00", "is not UTF-8"),
        (b"config: {a: \xe9}", "is not UTF-8"),
    ],
)
def test_a_file_that_is_no_stack_file_is_refused_in_words(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    said = refusal(tmp_path, text)
    assert said.startswith(f"{NAME}: ")
    assert message in said


def test_a_missing_file_is_said_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load_stack_file(tmp_path / NAME)
    assert str(caught.value).endswith(f"  - {tmp_path / NAME}: no such stack file")


def test_a_folder_in_place_of_the_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: Is a directory"):
        load_stack_file(tmp_path)


def test_a_key_written_twice_is_refused_at_its_line(tmp_path: Path) -> None:
    said = refusal(tmp_path, edited("  - name: main\n", "  - name: main\n    name: other\n"))
    line = GOOD.splitlines().index("  - name: main") + 2
    assert "the key name is given twice" in said
    assert f"line {line}, " in said


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "driver: 535.129.03",
            "driver: 535.54",
            "nodes[0].driver: 535.54: must be text: put it in quotes",
        ),
        ("name: gpu-01", "name: 2024-01-01", "nodes[0].name: '2024-01-01': accepted: lower-case letters"),
        ("name: gpu-01", "name: 12", "nodes[0].name: 12: must be text: put it in quotes"),
        ("name: gpu-01", "name: true", "nodes[0].name: True: must be text: put it in quotes"),
        ("name: gpu-01", "name: ~", "nodes[0].name: None: must be text"),
        ("cpus: 0-15,64-79", "cpus: 0", "nodes[0].gpus[0].cpus: 0: must be text: put it in quotes"),
        ("numa_node: 0", "numa_node: 0.0", "nodes[0].gpus[0].numa_node: 0.0: must be a whole number"),
        (
            "numa_node: 0",
            "numa_node: '0'",
            "nodes[0].gpus[0].numa_node: '0': must be a whole number, without quotes",
        ),
        ("numa_node: 0", "numa_node: .inf", "nodes[0].gpus[0].numa_node: inf: must be a whole number"),
        ("max_batch_size: 32", "max_batch_size: 0o40", "pools[0].batching.max_batch_size: '0o40'"),
        ("max_batch_size: 32", "max_batch_size: 040", "pools[0].batching.max_batch_size: '040'"),
        ("max_batch_size: 32", "max_batch_size: 0x20", "pools[0].batching.max_batch_size: '0x20'"),
        ("max_batch_size: 32", "max_batch_size: 1:30", "pools[0].batching.max_batch_size: '1:30'"),
        ("max_batch_size: 32", "max_batch_size: 3_2", "pools[0].batching.max_batch_size: '3_2'"),
        ("subnet: 172.29.80.0/24", "subnet: 172.29", "nodes[0].subnet: 172.29"),
    ],
)
def test_an_unquoted_value_that_yaml_takes_for_another_type_is_refused(
    tmp_path: Path, old: str, new: str, line: str
) -> None:
    said = refusal(tmp_path, edited(old, new)).splitlines()
    assert len(said) == 2
    assert said[1].startswith(f"  - {line}")


@pytest.mark.parametrize("word", ["yes", "on", "y", "No", "OFF", "'true'", "1"])
def test_only_true_and_false_are_booleans(tmp_path: Path, word: str) -> None:
    said = refusal(tmp_path, edited("  driver:", f"  share_cpus: {word}\n    driver:"))
    assert "nodes[0].share_cpus: " in said
    assert "true or false" in said


def test_words_that_older_yaml_takes_for_booleans_are_names(tmp_path: Path) -> None:
    assert load(tmp_path, edited("name: main", "name: on")).pools[0].name == "on"


def test_numbers_in_scientific_notation_are_numbers(tmp_path: Path) -> None:
    text = edited("    memory:\n", "    gpu_memory: {fraction: 5e-1}\n    memory:\n")
    assert load(tmp_path, text).pools[0].gpu_memory.fraction == 0.5


def test_text_that_is_not_unicode_is_refused_without_showing_the_file() -> None:
    config = stacks.changed(stacks.one_node(), "nodes[0].name", "\ud800")
    (said,) = stacks.refusal(config)
    assert said == "config: holds text that is not valid Unicode"


def test_pulumi_hands_over_the_same_settings(tmp_path: Path) -> None:
    environment = {f"tf-serving:{key}": json.dumps(value) for key, value in stacks.two_nodes().items()}
    environment |= {"pulumi:disable-default-providers": '["docker"]', "aws:region": "eu-west-1"}
    assert settings_from_pulumi(environment, (), "test", tmp_path) == stacks.settings(stacks.two_nodes())


@pytest.mark.parametrize("text", ["main", "", "{", "9" * 5000, "[" * 100_000])
def test_pulumi_values_of_any_text_give_a_refusal_that_names_the_file(tmp_path: Path, text: str) -> None:
    environment = {f"tf-serving:{key}": json.dumps(value) for key, value in stacks.one_node().items()}
    with pytest.raises(SettingsError) as caught:
        settings_from_pulumi(environment | {"tf-serving:pools": text}, (), "qa", tmp_path)
    assert caught.value.source == "Pulumi.qa.yaml"
    assert [problem.path for problem in caught.value.problems] == ["pools"]


def test_values_of_other_namespaces_are_left_out() -> None:
    assert own_values({"tf-serving:nodes": 1, "docker:host": 2, "tf-serving2:x": 3}) == {"nodes": 1}


def test_a_key_without_a_namespace_is_ours_as_it_is_to_pulumi(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD.replace("tf-serving:", "")) == load(tmp_path, GOOD)


def test_a_value_that_is_no_plain_data_is_refused() -> None:
    assert stacks.refusal(stacks.one_node() | {"rollout": 5}) == [
        "rollout: 5: must be a mapping: keys with values"
    ]


def test_keys_are_listed_for_every_object_of_a_stack_file() -> None:
    keys = accepted_keys(Settings)
    assert set(keys) == {
        "",
        "nodes[]",
        "nodes[].docker",
        "nodes[].gpus[]",
        "nodes[].gpus[].mig[]",
        "images",
        "pools[]",
        "pools[].models[]",
        "pools[].models[].versions",
        "pools[].models[].optimized",
        "pools[].release",
        "pools[].slots[]",
        "pools[].batching",
        "pools[].gpu_memory",
        "pools[].memory",
        "pools[].threads",
        "pools[].server",
        "pools[].balancing",
        "pools[].traffic",
        "pools[].traffic.standby",
        "pools[].traffic.dedicated[]",
        "pools[].traffic.dedicated[].header",
        "pools[].traffic.canary",
        "pools[].traffic.mirror",
        "front_end",
        "front_end.versions",
        "front_end.tls",
        "front_end.auth",
        "front_end.auth.api_keys[]",
        "front_end.auth.jwt",
        "front_end.auth.jwt.keys[]",
        "front_end.rate_limit",
        "front_end.tracing",
        "front_end.request_ids",
        "front_end.access_log",
        "rollout",
    }
    assert keys["pools[].slots[]"] == ["node", "gpus"]


def test_rules_across_the_file_are_checked_on_load() -> None:
    config = stacks.changed(stacks.one_node(), "pools[0].slots[0].node", "gpu-02")
    with pytest.raises(SettingsError, match="no such node; accepted: gpu-01"):
        load_settings(config, NAME)


def test_a_setting_that_is_given_with_and_without_our_prefix_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, GOOD + "  pools: []\n")
    assert said.splitlines()[1:] == ["  - tf-serving:pools: is also given as pools: keep one of them"]


def test_aliases_that_stand_for_billions_of_values_are_refused_at_once(tmp_path: Path) -> None:
    lines = ["  tf-serving:x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"  tf-serving:x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]" for n in range(1, 10)]
    said = refusal(tmp_path, f"{GOOD}{chr(10).join(lines)}\n")
    assert "its aliases stand for more than 1000000 values" in said


@pytest.mark.parametrize("owner", ["123", "true", "007", "ml-platform"])
def test_text_that_looks_like_a_number_is_text_however_pulumi_hands_it_over(
    tmp_path: Path, owner: str
) -> None:
    config = stacks.one_node() | {"owner": owner}
    handed_over = {
        f"tf-serving:{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in config.items()
    }
    assert load(tmp_path, as_text(config)).owner == owner
    assert settings_from_pulumi(handed_over, (), "test", tmp_path).owner == owner
