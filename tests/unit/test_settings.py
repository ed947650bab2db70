"""Rules inside one model: what each refuses, in words people see, and what comes close and is accepted."""

from ipaddress import IPv4Address, IPv4Network

import pytest
from pydantic import ValidationError

from components.base import Model
from components.model_settings import VersionPolicy
from components.settings import FrontEnd, Settings
from tests import stacks
from tests.stacks import changed, one_node, refusal, without

UUID_0 = stacks.uuid(0)
POOL = "pools[0]"
BATCHING = f"{POOL}.batching"
MODEL = f"{POOL}.models[0]"

REFUSED = [
    # Node and its GPUs
    ("nodes[0].gpus[2].index", 0, "nodes[0].gpus[2].index: 0: is also gpus[0].index"),
    ("nodes[0].gpus[2].uuid", UUID_0, f"nodes[0].gpus[2].uuid: '{UUID_0}': is also gpus[0].uuid"),
    ("nodes[0].gpus[1].index", 16, "nodes[0].gpus[1].index: 16: input should be less than or equal to 15"),
    ("nodes[0].gpus[1].index", -1, "nodes[0].gpus[1].index: -1: input should be greater than or equal to 0"),
    (
        "nodes[0].gpus[1].numa_node",
        8,
        "nodes[0].gpus[1].numa_node: 8: input should be less than or equal to 7",
    ),
    (
        "nodes[0].gpus[2].cpus",
        "15-16",
        "nodes[0].gpus[2].cpus: '15-16': overlaps gpus[0], gpus[1]; give each slot its own CPUs",
    ),
    (
        "nodes[0].gpus[2].cpus",
        "all",
        "nodes[0].gpus[2].cpus: 'all': a CPU set is a list of numbers and ranges, such as 0-15,64-79",
    ),
    (
        "nodes[0].subnet",
        "172.29.80.0/25",
        "nodes[0].subnet: '172.29.80.0/25': a private IPv4 network of /24 or larger",
    ),
    (
        "nodes[0].subnet",
        "8.8.8.0/24",
        "nodes[0].subnet: '8.8.8.0/24': a private IPv4 network of /24 or larger",
    ),
    (
        "nodes[0].subnet",
        "127.0.0.0/24",
        "nodes[0].subnet: '127.0.0.0/24': a private IPv4 network of /24 or larger",
    ),
    (
        "nodes[0].subnet",
        "169.254.0.0/16",
        "nodes[0].subnet: '169.254.0.0/16': a private IPv4 network of /24 or larger",
    ),
    (
        "nodes[0].subnet",
        "172.0.0.0/8",
        "nodes[0].subnet: '172.0.0.0/8': a private IPv4 network of /24 or larger",
    ),
    (
        "nodes[0].subnet",
        "172.29.80.1/24",
        "nodes[0].subnet: '172.29.80.1/24': 172.29.80.1/24 has host bits set",
    ),
    ("nodes[0].memory_mib", 512, "nodes[0].memory_mib: 512: input should be greater than or equal to 1024"),
    # Docker
    (
        "nodes[0].docker",
        {"endpoint": "unix:///run/docker.sock", "ssh_options": ["-v"]},
        "nodes[0].docker.ssh_options: only for ssh:// endpoints, not unix:///run/docker.sock",
    ),
    # Versions and labels
    (f"{MODEL}.versions", {}, f"{MODEL}.versions: give exactly one: latest: <n>, all: true or specific: "),
    (
        f"{MODEL}.versions",
        {"latest": 2, "specific": [1]},
        f"{MODEL}.versions: give exactly one: latest: <n>, all: true or specific: [<version>, …]",
    ),
    (f"{MODEL}.versions", {"latest": None}, f"{MODEL}.versions: give exactly one: latest: <n>, "),
    (f"{MODEL}.versions", {"specific": [1, 2, 1]}, f"{MODEL}.versions.specific[2]: 1: is also specific[0]"),
    (
        f"{MODEL}.versions",
        {"specific": []},
        f"{MODEL}.versions.specific: []: must hold at least 1 item",
    ),
    (
        f"{MODEL}.versions",
        {"specific": [-1]},
        f"{MODEL}.versions.specific[0]: -1: input should be greater than",
    ),
    (
        f"{MODEL}.versions",
        {"specific": [2**63]},
        f"{MODEL}.versions.specific[0]: {2**63}: input should be less",
    ),
    (
        f"{MODEL}.versions",
        {"latest": 0},
        f"{MODEL}.versions.latest: 0: input should be greater than or equal",
    ),
    (f"{MODEL}.versions", {"all": False}, f"{MODEL}.versions.all: False: input should be True"),
    (
        f"{MODEL}.versions",
        "LATEST_VERSION",
        f"{MODEL}.versions: 'LATEST_VERSION': must be a mapping: keys with values",
    ),
    (
        f"{MODEL}.versions",
        {"specific": ["v1"]},
        f"{MODEL}.versions.specific[0]: 'v1': must be a whole number",
    ),
    (
        f"{MODEL}.labels",
        {"stable": 1, "canary": 2},
        f"{MODEL}.labels: {{'stable': 1, 'canary': 2}}: name 2 versions but versions.latest keeps 1; keep",
    ),
    (f"{MODEL}.labels", {"stable": "1"}, f"{MODEL}.labels.stable: '1': must be a whole number"),
    # Batching
    (
        f"{BATCHING}.allowed_batch_sizes",
        [1, 8],
        f"{BATCHING}.allowed_batch_sizes: [1, 8]: the last size must equal max_batch_size 32",
    ),
    (
        f"{BATCHING}.allowed_batch_sizes",
        [1, 32, 8],
        f"{BATCHING}.allowed_batch_sizes: [1, 32, 8]: must increase",
    ),
    (
        f"{BATCHING}.allowed_batch_sizes",
        [8, 8, 32],
        f"{BATCHING}.allowed_batch_sizes: [8, 8, 32]: must increase",
    ),
    (
        f"{BATCHING}.allowed_batch_sizes",
        [0, 32],
        f"{BATCHING}.allowed_batch_sizes[0]: 0: input should be greater",
    ),
    (
        f"{BATCHING}.max_batch_size",
        0,
        f"{BATCHING}.max_batch_size: 0: input should be greater than or equal to 1",
    ),
    (f"{BATCHING}.batch_timeout_micros", -1, f"{BATCHING}.batch_timeout_micros: -1: input should be greater"),
    (f"{BATCHING}.num_batch_threads", 0, f"{BATCHING}.num_batch_threads: 0: input should be greater than"),
    (
        f"{BATCHING}.max_enqueued_batches",
        0,
        f"{BATCHING}.max_enqueued_batches: 0: input should be greater than",
    ),
    (
        f"{MODEL}.batching",
        {},
        f"{MODEL}.batching: {{}}: no such setting: it holds for every model of a server",
    ),
    # Memory
    (
        f"{POOL}.memory",
        {"container_mib": 1024, "shm_mib": 1025},
        f"{POOL}.memory.shm_mib: 1025: exceeds container_mib 1024",
    ),
    (
        f"{POOL}.memory.container_mib",
        63,
        f"{POOL}.memory.container_mib: 63: input should be greater than or equal",
    ),
    (
        f"{POOL}.gpu_memory",
        {"fraction": 0.0},
        f"{POOL}.gpu_memory.fraction: 0.0: input should be greater than 0",
    ),
    (
        f"{POOL}.gpu_memory",
        {"fraction": 0.96},
        f"{POOL}.gpu_memory.fraction: 0.96: input should be less than or",
    ),
    (f"{POOL}.gpu_memory", {"fraction": float("nan")}, f"{POOL}.gpu_memory.fraction: nan: input should be"),
    (
        f"{POOL}.gpu_memory",
        {"allow_growth": 1},
        f"{POOL}.gpu_memory.allow_growth: 1: must be true or false",
    ),
    (
        f"{MODEL}.gpu_memory_fraction",
        0.5,
        f"{MODEL}.gpu_memory_fraction: 0.5: no such setting: set gpu_memory.fraction of the pool",
    ),
    # Threads
    (
        f"{POOL}.threads",
        {"grpc_max": 23, "rest": 8},
        f"{POOL}.threads: {{'grpc_max': 23, 'rest': 8}}: 31 requests in flight can never fill a batch",
    ),
    (
        f"{POOL}.threads",
        {"grpc_max": 0},
        f"{POOL}.threads.grpc_max: 0: input should be greater than or equal to 1",
    ),
    # Pool
    (
        f"{POOL}.models",
        [{"name": "m", "path": "/m"}, {"name": "m", "path": "/n"}],
        f"{POOL}.models[1].name: 'm': is also models[0].name",
    ),
    (f"{POOL}.slots", [], f"{POOL}.slots: []: must hold at least 1 item"),
    (f"{POOL}.load_timeout_s", 9, f"{POOL}.load_timeout_s: 9: input should be greater than or equal to 10"),
    (
        f"{POOL}.name",
        "Main",
        f"{POOL}.name: 'Main': accepted: lower-case letters, digits and '-', starting with",
    ),
    (
        "nodes[0].gpus[0].uuid",
        "all",
        "nodes[0].gpus[0].uuid: 'all': accepted: the UUID that `nvidia-smi -L` prin",
    ),
    (
        "images.server",
        "tensorflow/serving",
        "images.server: 'tensorflow/serving': accepted: repository:tag, or",
    ),
    # Front end and rollout
    ("front_end", {"rest_port": 8500}, "front_end.grpc_port: 8500: is also rest_port"),
    ("front_end", {"metrics_port": 8080}, "front_end.metrics_port: 8080: is also rest_port"),
    ("front_end", {"metrics_port": 8500}, "front_end.metrics_port: 8500: is also grpc_port"),
    ("front_end", {"rest_port": 0}, "front_end.rest_port: 0: input should be greater than or equal to 1"),
    (
        "front_end",
        {"rest_port": 65536},
        "front_end.rest_port: 65536: input should be less than or equal to 65535",
    ),
    ("front_end", {"bind": "localhost"}, "front_end.bind: 'localhost': Expected 4 octets in 'localhost'"),
    (
        "front_end",
        {"request_timeout_s": 0},
        "front_end.request_timeout_s: 0: input should be greater than or equ",
    ),
    (
        "rollout",
        {"stop_timeout_s": 601},
        "rollout.stop_timeout_s: 601: input should be less than or equal to 600",
    ),
    (
        "rollout",
        {"health_interval_s": 0},
        "rollout.health_interval_s: 0: input should be greater than or equal",
    ),
]

ACCEPTED = [
    ("nodes[0].gpus[2].index", 15, "pools[0].slots[0].gpus", [0, 1, 3, 15]),
    ("nodes[0].gpus[2].cpus", "128-143", None, None),
    ("nodes[0].gpus[1].cpus", "0-15", "nodes[0].share_cpus", True),
    ("nodes[0].subnet", "10.0.0.0/8", None, None),
    ("nodes[0].subnet", "172.16.0.0/12", None, None),
    ("nodes[0].subnet", "192.168.7.0/24", None, None),
    ("nodes[0].docker.ssh_options", ["-o", "BatchMode=yes"], None, None),
    (f"{MODEL}.versions", {"latest": 2, "all": None}, None, None),
    (f"{MODEL}.versions", {"specific": [0, 2**63 - 1]}, None, None),
    (f"{MODEL}.labels", {"stable": 7}, None, None),
    (f"{MODEL}.labels", {"stable": 7, "canary": 7}, None, None),
    (f"{MODEL}.labels", {"stable": 7, "canary": 8}, f"{MODEL}.versions", {"latest": 2}),
    (f"{MODEL}.labels", {"stable": 7, "canary": 8}, f"{MODEL}.versions", {"specific": [7, 8]}),
    (f"{MODEL}.labels", {"stable": 7, "canary": 8}, f"{MODEL}.versions", {"all": True}),
    (f"{BATCHING}.allowed_batch_sizes", [32], None, None),
    (f"{BATCHING}.allowed_batch_sizes", [], None, None),
    (f"{BATCHING}.batch_timeout_micros", 0, None, None),
    (f"{POOL}.memory", {"container_mib": 1024, "shm_mib": 1024}, None, None),
    (f"{POOL}.gpu_memory", {"allow_growth": True, "fraction": 0.95}, None, None),
    (f"{POOL}.threads", {"grpc_max": 1}, None, None),
    (f"{POOL}.threads", {"grpc_max": 24, "rest": 8}, None, None),
    (f"{POOL}.threads", {"grpc_max": 8, "rest": 24}, None, None),
    (f"{POOL}.threads", {"intra_op": 1}, None, None),
    (f"{POOL}.threads", {"grpc_max": 1}, BATCHING, None),
    ("front_end", {"rest_port": 8500, "grpc_port": 8080}, None, None),
    ("nodes[0].driver", None, None, None),
]


@pytest.mark.parametrize(("path", "value", "line"), REFUSED)
def test_a_broken_rule_is_told_once_with_path_value_and_what_is_accepted(
    path: str, value: object, line: str
) -> None:
    (said,) = refusal(changed(one_node(), path, value))
    assert said.startswith(line)


@pytest.mark.parametrize(("path", "value", "also", "value_there"), ACCEPTED)
def test_what_comes_close_to_a_broken_rule_is_accepted(
    path: str, value: object, also: str | None, value_there: object
) -> None:
    config = changed(stacks.in_staging(one_node()), path, value)
    assert stacks.problems(changed(config, also, value_there) if also else config) == ()


def test_a_label_on_a_version_outside_the_specific_ones_is_refused_at_that_label() -> None:
    config = changed(one_node(), f"{MODEL}.versions", {"specific": [1, 2]})
    config = changed(config, f"{MODEL}.labels", {"stable": 1, "canary": 3})
    assert refusal(config) == [f"{MODEL}.labels.canary: 3: not among versions.specific [1, 2]"]


def test_each_cpu_set_that_overlaps_is_told() -> None:
    config = changed(one_node(), "nodes[0].gpus[1].cpus", "0-3")
    config = changed(config, "nodes[0].gpus[3].cpus", "3")
    assert [said.partition(";")[0] for said in refusal(config)] == [
        "nodes[0].gpus[1].cpus: '0-3': overlaps gpus[0]",
        "nodes[0].gpus[3].cpus: '3': overlaps gpus[0]",
    ]


def test_slots_without_cpus_overlap_nothing() -> None:
    config = stacks.in_staging(one_node())
    for gpu in range(4):
        config = without(config, f"nodes[0].gpus[{gpu}].cpus")
    assert [gpu.cpus for gpu in stacks.settings(config).nodes[0].gpus] == [None] * 4


@pytest.mark.parametrize(
    "path",
    [
        "nodes",
        "images",
        "pools",
        "nodes[0].name",
        "nodes[0].address",
        "nodes[0].docker",
        "nodes[0].docker.endpoint",
        "nodes[0].memory_mib",
        "nodes[0].subnet",
        "nodes[0].gpus[0].index",
        "nodes[0].gpus[0].uuid",
        "images.server",
        "images.envoy",
        "pools[0].name",
        "pools[0].models",
        "pools[0].models[0].name",
        "pools[0].models[0].path",
        "pools[0].slots",
        "pools[0].slots[0].node",
        "pools[0].slots[0].gpus",
        "pools[0].memory",
        "pools[0].memory.container_mib",
        "pools[0].batching.max_batch_size",
        "pools[0].batching.batch_timeout_micros",
    ],
)
def test_what_has_no_default_is_required(path: str) -> None:
    assert refusal(without(one_node(), path)) == [f"{path}: is required"]


@pytest.mark.parametrize("path", ["nodes", "pools", "pools[0].models", "pools[0].slots"])
def test_an_empty_list_where_something_must_stand_is_refused(path: str) -> None:
    (said,) = refusal(changed(one_node(), path, []))
    assert said.startswith(f"{path}: []: ")


def test_a_wrong_item_is_not_also_told_as_a_list_that_is_too_short() -> None:
    assert refusal(changed(one_node(), "nodes[0].gpus", [{}])) == [
        "nodes[0].gpus[0].index: is required",
        "nodes[0].gpus[0].uuid: is required",
    ]


def test_defaults_are_the_documented_ones() -> None:
    settings = stacks.settings(without(stacks.in_staging(one_node()), "pools[0].batching"))
    (pool,) = settings.pools
    assert settings.front_end == FrontEnd()
    assert settings.front_end.bind == IPv4Address("0.0.0.0")  # noqa: S104 - the value under test
    assert (settings.front_end.rest_port, settings.front_end.grpc_port) == (8080, 8500)
    assert (pool.batching, pool.load_timeout_s) == (None, 600)
    assert (pool.gpu_memory.allow_growth, pool.gpu_memory.fraction) == (True, None)
    assert pool.models[0].versions == VersionPolicy(latest=1)
    assert settings.nodes[0].subnet == IPv4Network("172.29.80.0/24")


def test_settings_cannot_be_changed_after_they_were_checked() -> None:
    settings = stacks.settings(one_node())
    with pytest.raises(ValidationError, match="frozen"):
        settings.pools[0].name = "other"  # type: ignore[misc]


def models(model: type[Model]) -> set[type[Model]]:
    return {model}.union(*(models(child) for child in model.__subclasses__()))


def test_every_model_is_frozen_strict_and_refuses_unknown_keys() -> None:
    assert Settings in models(Model)
    for model in models(Model):
        assert model.model_config.get("frozen") is True, model
        assert model.model_config.get("strict") is True, model
        assert model.model_config.get("extra") == "forbid", model
