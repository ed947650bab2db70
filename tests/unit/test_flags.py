"""The server's command line: only flags that its version has, in the one form that it reads."""

from dataclasses import replace

import pytest

from components import flags
from components.facts import facts
from components.plan import InstancePlan
from tests import stacks
from tests.stacks import changed, in_staging, one_node, two_nodes, without


def instance(config: stacks.Config, name: str = "gpu-01-gpu0") -> InstancePlan:
    (found,) = [found for found in stacks.plan(config).instances if found.name == name]
    return found


def arguments(config: stacks.Config, name: str = "gpu-01-gpu0") -> dict[str, str]:
    return stacks.arguments(config, stacks.plan(config).instances.index(instance(config, name)))


EVERYTHING = {
    "batching": {"max_batch_size": 4, "batch_timeout_micros": 0},
    "gpu_memory": {"allow_growth": True, "fraction": 0.5},
    "threads": {"grpc_max": 8, "rest": 8, "intra_op": 2, "inter_op": 1},
}


def everything() -> stacks.Config:
    config = in_staging(one_node())
    for key, value in EVERYTHING.items():
        config = changed(config, f"pools[0].{key}", value)
    return changed(config, "pools[0].models[0].labels", {"stable": 1})


def test_the_arguments_of_a_batched_instance() -> None:
    assert flags.server_arguments(instance(one_node())) == (
        "--port=8500",
        "--rest_api_port=8501",
        "--rest_api_timeout_in_ms=30000",
        "--model_config_file=/config/models-566d65e8c1f8.config",
        "--monitoring_config_file=/config/monitoring-bb222bfcc1ab.config",
        "--enable_batching=true",
        "--batching_parameters_file=/config/batching-bb40ff0e3dca.config",
        "--model_config_file_poll_wait_seconds=5",
        "--allow_version_labels_for_unavailable_models=true",
        "--grpc_max_threads=64",
        "--rest_api_num_threads=64",
        "--num_load_threads=2",
        "--enable_profiler=false",
    )


def test_every_setting_of_a_pool_reaches_its_flag() -> None:
    given = arguments(two_nodes(), "gpu-02-gpu2")
    assert given["per_process_gpu_memory_fraction"] == "0.9"
    assert given["grpc_max_threads"] == "8"
    assert given["rest_api_num_threads"] == "4"
    assert given["tensorflow_intra_op_parallelism"] == "2"
    assert given["tensorflow_inter_op_parallelism"] == "1"
    assert given["allow_version_labels_for_unavailable_models"] == "true"


def test_without_batching_neither_the_flag_nor_the_file_is_given() -> None:
    # A file without the flag is an error at start.
    given = arguments(without(in_staging(one_node()), "pools[0].batching"))
    assert not {"enable_batching", "batching_parameters_file"} & set(given)


def test_no_model_version_or_label_is_told_by_a_flag_so_that_a_server_need_not_be_replaced_for_it() -> None:
    labelled = changed(one_node(), "pools[0].models[0].labels", {"stable": 1})
    model = "pools[0].models[0]"
    for config in (labelled, changed(one_node(), f"{model}.versions", {"specific": [1, 2]})):
        assert arguments(config) == arguments(one_node())
    assert arguments(labelled)["allow_version_labels_for_unavailable_models"] == "true"


def test_other_mounts_are_another_list_of_models_so_that_no_server_reads_of_folders_that_it_lacks() -> None:
    def named(config: stacks.Config) -> str:
        return arguments(config)["model_config_file"]

    second = {"name": "bert", "path": "/srv/models/bert"}
    more = changed(one_node(), "pools[0].models[1]", second)
    assert named(more) != named(one_node())
    whole = changed(one_node(), "pools[0].models_folder", "/srv/models")
    assert named(changed(whole, "pools[0].models[1]", second)) == named(whole) != named(one_node())


def test_what_is_left_to_the_server_is_not_written() -> None:
    given = arguments(without(in_staging(one_node()), "pools[0].batching"))
    assert {name for name in given if "threads" in name or "parallelism" in name or "memory" in name} == {
        "num_load_threads"
    }


def test_the_servers_patience_is_that_of_the_front_end() -> None:
    given = arguments(changed(one_node(), "front_end", {"request_timeout_s": 5}))
    assert given["rest_api_timeout_in_ms"] == "5000"


def test_the_profiler_is_off() -> None:
    assert arguments(one_node())["enable_profiler"] == "false"


@pytest.mark.parametrize("version", facts().versions())
def test_every_flag_that_can_be_written_exists_in_every_release_with_that_type(version: str) -> None:
    known = facts().flags_of(version)
    given = arguments(everything())
    assert len(given) == 16
    for name, value in given.items():
        match known[name].type:
            case "int":
                assert value.isdecimal(), name
            case "bool":
                assert value in ("true", "false"), name
            case "float":
                assert 0 < float(value) <= 1, name
            case "string":
                assert value.startswith("/"), name


def test_a_flag_that_the_version_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    known = facts().flags["enable_profiler"].model_copy(update={"since": "2.15.1"})
    lacking = facts().model_copy(update={"flags": facts().flags | {"enable_profiler": known}})
    monkeypatch.setattr("components.flags.facts", lambda: lacking)
    old = replace(instance(one_node()), version="2.14.1")
    with pytest.raises(ValueError, match=r"^TensorFlow Serving 2\.14\.1 has no flag enable_profiler$"):
        flags.server_arguments(old)
    assert "--enable_profiler=false" in flags.server_arguments(replace(old, version="2.15.1"))


@pytest.mark.parametrize(("allow_growth", "text"), [(True, "true"), (False, "false")])
def test_growth_is_spelt_in_the_only_way_that_tensorflow_reads(allow_growth: bool, text: str) -> None:
    config = changed(one_node(), "pools[0].gpu_memory", {"allow_growth": allow_growth, "fraction": 0.9})
    assert flags.server_environment(instance(config)) == (
        "TF_CPP_MIN_LOG_LEVEL=0",
        f"TF_FORCE_GPU_ALLOW_GROWTH={text}",
    )


@pytest.mark.parametrize(("level", "number"), [("info", 0), ("warning", 1), ("error", 2)])
def test_the_log_level_is_the_servers_own_number(level: str, number: int) -> None:
    config = changed(one_node(), "pools[0].log_level", level)
    assert f"TF_CPP_MIN_LOG_LEVEL={number}" in flags.server_environment(instance(config))
