"""Pools: models and their faster forms, batches, threads, flags of the server."""

from typing import get_args

import pytest

from components.facts import facts
from components.pool_settings import ServerOptions
from tests import stacks
from tests.stacks import changed, one_node, optimized, refusal

POOL = "pools[0]"
BATCHING = f"{POOL}.batching"
MODEL = f"{POOL}.models[0]"
FORM = f"{MODEL}.optimized"
SERVER = f"{POOL}.server"


def batching(**more: object) -> stacks.Config:
    return changed(one_node(), BATCHING, one_node()["pools"][0]["batching"] | more)


def beside(name: str) -> stacks.Config:
    return changed(optimized("fp16"), f"{POOL}.models[1]", {"name": name, "path": "/srv/models/other"})


REFUSED = [
    # one_stays
    (
        changed(one_node(), f"{POOL}.max_unavailable", 4),
        f"{POOL}.max_unavailable: 4: leaves none of its 4 instances; at most 3",
    ),
    # splitting_says_into_what
    (
        batching(enable_large_batch_splitting=True),
        f"{BATCHING}.max_execution_batch_size: is required with enable_large_batch_splitting",
    ),
    (
        batching(max_execution_batch_size=8),
        f"{BATCHING}.max_execution_batch_size: 8: only with enable_large_batch_splitting: true",
    ),
    (
        batching(enable_large_batch_splitting=True, max_execution_batch_size=33),
        f"{BATCHING}.max_execution_batch_size: 33: exceeds max_batch_size 32",
    ),
    (
        batching(enable_large_batch_splitting=True, max_execution_batch_size=16),
        f"{BATCHING}.max_execution_batch_size: 16: must be one of allowed_batch_sizes",
    ),
    # requests_fit_a_batch
    (
        changed(one_node(), f"{POOL}.client_batch_size", 33),
        f"{POOL}.client_batch_size: 33: exceeds batching.max_batch_size 32: the server answers 400; raise it",
    ),
    # batches_can_fill
    (
        changed(one_node(), f"{POOL}.threads", {"grpc_max": 16, "rest": 15}),
        f"{POOL}.threads: {{'grpc_max': 16, 'rest': 15}}: 31 requests in flight can never fill a batch of 32",
    ),
    # one_way_to_take_gpus
    (
        changed(changed(stacks.with_all_gpus(), f"{POOL}.sharing", True), f"{POOL}.gpu_memory", {}),
        f"{POOL}.all_gpus: cannot be combined with sharing",
    ),
    # models_are_told_apart
    (
        beside("resnet50_original"),
        f"{FORM}.keep_original: resnet50_original is also a model of the pool",
    ),
    # tensorrt_version_needs_tensorrt
    (
        changed(optimized("fp16"), f"{FORM}.tensorrt", "8.6.1"),
        f"{FORM}.tensorrt: '8.6.1': only with kind: tensorrt, not fp16",
    ),
    (
        changed(optimized("fp16"), f"{FORM}.kind", "int8"),
        f"{FORM}.kind: 'int8': input should be 'tensorrt', ",
    ),
    (
        changed(one_node(), f"{POOL}.log_level", "debug"),
        f"{POOL}.log_level: 'debug': input should be 'info', ",
    ),
    # types of the server's flags
    (
        changed(one_node(), SERVER, {"num_load_threads": -1}),
        f"{SERVER}.num_load_threads: -1: input should be ",
    ),
    (
        changed(one_node(), SERVER, {"enable_model_warmup": 1}),
        f"{SERVER}.enable_model_warmup: 1: must be true or false",
    ),
    (
        changed(one_node(), SERVER, {"mixed_precision": "float16"}),
        f"{SERVER}.mixed_precision: 'float16': input should be 'bfloat16'",
    ),
    (
        changed(one_node(), SERVER, {"shared_model": True}),
        f"{SERVER}.shared_model: True: no such setting: no server has it: list several models in one pool",
    ),
    (
        changed(one_node(), SERVER, {"num_load_thread": 1}),
        f"{SERVER}.num_load_thread: 1: unknown key; did you mean num_load_threads?",
    ),
]

ACCEPTED = [
    changed(one_node(), f"{POOL}.max_unavailable", 3),
    changed(stacks.with_all_gpus(), f"{POOL}.max_unavailable", 5),
    batching(enable_large_batch_splitting=True, max_execution_batch_size=8),
    batching(enable_large_batch_splitting=True, max_execution_batch_size=32),
    batching(enable_large_batch_splitting=True, max_execution_batch_size=16, allowed_batch_sizes=[]),
    changed(one_node(), f"{POOL}.client_batch_size", 32),
    changed(changed(one_node(), f"{POOL}.client_batch_size", 999), BATCHING, None),
    changed(one_node(), f"{POOL}.threads", {"grpc_max": 16, "rest": 16}),
    beside("resnet50_copy"),
    changed(beside("resnet50_original"), f"{FORM}.keep_original", False),
    changed(optimized("tensorrt"), f"{FORM}.tensorrt", "8.6.1"),
    changed(one_node(), SERVER, {"num_load_threads": 0, "load_retry_interval_micros": -1}),
    changed(one_node(), SERVER, {}),
]


@pytest.mark.parametrize(("config", "line"), REFUSED)
def test_a_pool_that_breaks_a_rule_is_refused_in_one_line(config: stacks.Config, line: str) -> None:
    (said,) = refusal(config)
    assert said.startswith(line)


@pytest.mark.parametrize("config", ACCEPTED)
def test_a_pool_that_comes_close_to_breaking_a_rule_is_accepted(config: stacks.Config) -> None:
    assert stacks.problems(stacks.in_staging(config)) == ()


def test_every_server_option_is_a_flag_of_that_type() -> None:
    python_type = {"int": int, "bool": bool, "string": str}
    for name, field in ServerOptions.model_fields.items():
        (wanted, *_) = (part for part in get_args(field.annotation) if part is not type(None))
        value_type = get_args(wanted)[0] if get_args(wanted) else wanted
        actual = type(value_type) if isinstance(value_type, str) else value_type
        assert actual is python_type[facts().flags[name].type], name


def test_every_server_option_reaches_the_command_line() -> None:
    samples: dict[str, object] = {"int": 3, "bool": True, "string": "serve"}
    config = changed(one_node(), "images.server", "tensorflow/serving:2.20.0-gpu")
    given = {name: samples[facts().flags[name].type] for name in ServerOptions.model_fields}
    given["mixed_precision"] = "bfloat16"
    config = changed(config, SERVER, given)
    arguments = stacks.arguments(config)
    assert {name: arguments[name] for name in given} == {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()
    }
