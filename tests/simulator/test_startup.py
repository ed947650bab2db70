"""Flags, files and environment at start: what is accepted, and how the rest ends."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.simulator.conftest import Start
from tests.simulator.server import Server, free_port, model, models_config, publish, wait_for

pytestmark = pytest.mark.simulator
REFUSED, IGNORED = 255, 64


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--max_batch_size=32"], IGNORED, "not a flag"),
        (["--enable_grpc_healthcheck_service=true"], IGNORED, "from 2.15 on"),
        (["--port", "9000"], IGNORED, "equals sign"),
        (["leftover"], IGNORED, "--name=value"),
        (["--enable_batching=yes"], REFUSED, "true, false, 1 or 0"),
        (["--model_base_path="], REFUSED, "are empty"),
        (["--model_base_path=relative/path"], REFUSED, "absolute path or URI"),
        (["--batching_parameters_file=batching.config"], REFUSED, "without setting"),
        (["--model_config_file=absent.config"], REFUSED, "absent.config; No such file"),
        (["--model_config_file=empty.config"], REFUSED, "Invalid argument"),
        (["--model_config_file=wrong.config"], REFUSED, "Invalid protobuf file: 'wrong.config'"),
        (["--enable_batching", "--batching_parameters_file=wrong.config"], REFUSED, "Invalid protobuf file"),
        (["--enable_batching", "--batching_parameters_file=threads.config"], REFUSED, "num_batch_threads"),
        (["--tensorflow_session_config_file=fraction.config"], IGNORED, "overwritten by the flag"),
        (["--platform_config_file=platform.config"], REFUSED, "no entry for platform tensorflow"),
        (["--saved_model_tags=serve,gpu", "--max_num_load_retries=0"], REFUSED, "matching supplied tags"),
    ],
)
def test_a_mistake_ends_the_process_with_its_reason(
    start: Start, half: Path, tmp_path: Path, flags: list[str], code: int, message: str
) -> None:
    (tmp_path / "empty.config").touch()
    (tmp_path / "wrong.config").write_text("max_batch_size: 32")
    (tmp_path / "threads.config").write_text("num_batch_threads { value: 0 }")
    (tmp_path / "fraction.config").write_text("gpu_options { per_process_gpu_memory_fraction: 0.5 }")
    (tmp_path / "platform.config").write_text('platform_configs { key: "other" value {} }')
    server = start(f"--model_base_path={half}", *flags)
    assert server.exit_code() == code
    assert message in server.printed()


@pytest.mark.parametrize("gpus", ["", "void", "all", "none", "0,1", "GPU-1,GPU-2"])
def test_a_server_without_exactly_one_gpu_does_not_start(start: Start, half: Path, gpus: str) -> None:
    server = start(f"--model_base_path={half}", env={"NVIDIA_VISIBLE_DEVICES": gpus})
    assert server.exit_code() == IGNORED
    assert f'NVIDIA_VISIBLE_DEVICES="{gpus}"' in server.printed()


def test_a_cpu_image_starts_without_a_gpu(start: Start, half: Path) -> None:
    env = {"NVIDIA_VISIBLE_DEVICES": "", "SIM_ALLOW_ANY_GPU": "1"}
    start(f"--model_base_path={half}", env=env).ready()


def test_the_version_is_printed_without_a_gpu(start: Start) -> None:
    server = start(
        "--version", env={"NVIDIA_VISIBLE_DEVICES": "all", "TF_SERVING_SIMULATED_VERSION": "2.19.1"}
    )
    assert server.exit_code() == 0
    assert "TensorFlow ModelServer: 2.19.1" in server.printed()


def test_logging_config_fails_the_start_after_the_models_loaded(
    start: Start, half: Path, tmp_path: Path
) -> None:
    config = tmp_path / "models.config"
    config.write_text(
        models_config(model("half", half, "logging_config { sampling_config { sampling_rate: 1 } }"))
    )
    server = start(f"--model_config_file={config}")
    assert server.exit_code() == REFUSED
    assert "Successfully loaded" in server.printed()
    assert "No request-logger-creator provided" in server.printed()


def test_a_file_without_models_starts_a_server_without_models(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "models.config"
    config.write_text("# nothing yet\n")
    assert start(f"--model_config_file={config}").ready().states("half") == {}


def test_equal_ports_leave_rest_closed_and_the_server_running(start: Start, half: Path) -> None:
    port = free_port()
    server = start("--model_name=half", f"--model_base_path={half}", ports=(port, port))
    wait_for("gRPC", lambda: server.is_open(port))
    reply = server.grpc("tensorflow.serving.ModelService", "GetModelStatus", {"model_spec": {"name": "half"}})
    assert reply.code == "OK"
    assert "cannot be same as grpc_port" in server.printed()


def test_a_rest_port_that_is_taken_leaves_grpc_running(start: Start, server: Server, half: Path) -> None:
    second = start(f"--model_base_path={half}", ports=(free_port(), server.rest_port))
    wait_for("the error", lambda: "Failed to start HTTP Server" in second.printed())
    assert second.is_open(second.grpc_port)
    assert second.process.poll() is None


def test_a_bad_monitoring_file_leaves_rest_closed_and_the_process_running(start: Start, half: Path) -> None:
    server = start(f"--model_base_path={half}", "--monitoring_config_file=absent.config")
    wait_for("gRPC", lambda: server.is_open(server.grpc_port))
    wait_for("the error", lambda: "absent.config" in server.printed())
    assert server.process.poll() is None
    assert not server.is_open(server.rest_port)


def test_ports_open_only_when_every_model_is_loaded(start: Start, half: Path, tmp_path: Path) -> None:
    slow = tmp_path / "models" / "slow"
    slow.mkdir()
    config = tmp_path / "models.config"
    config.write_text(models_config(model("half", half), model("slow", slow)))
    server = start(f"--model_config_file={config}")
    wait_for("half", lambda: "Successfully loaded servable version {name: half" in server.printed())
    assert not server.is_open(server.grpc_port)
    assert not server.is_open(server.rest_port)
    publish(slow, 1)
    server.ready()
    assert server.states("slow") == {1: "AVAILABLE"}


def test_the_time_to_load_can_be_set(start: Start, half: Path) -> None:
    server = start(f"--model_base_path={half}", env={"SIM_LOAD_SECONDS": "0.5"})
    wait_for("the load", lambda: "Loading servable version" in server.printed())
    assert not server.is_open(server.rest_port)
    server.ready()


def test_a_version_that_never_loads_ends_the_start_after_its_retries(start: Start, tmp_path: Path) -> None:
    base = tmp_path / "models" / "empty"
    publish(base, 1, {"saved_model.pb": b""})
    server = start(
        f"--model_base_path={base}", "--max_num_load_retries=2", "--load_retry_interval_micros=100000"
    )
    assert server.exit_code() == REFUSED
    assert server.printed().count("Could not find SavedModel") >= 3
    assert "1 servable(s) did not become available" in server.printed()


def test_a_wrong_batch_size_is_found_when_a_model_loads(start: Start, half: Path, tmp_path: Path) -> None:
    (tmp_path / "batching.config").write_text("max_batch_size { value: 64 } allowed_batch_sizes: [8, 32]")
    server = start(
        f"--model_base_path={half}",
        "--enable_batching",
        "--batching_parameters_file=batching.config",
        "--max_num_load_retries=1",
        "--load_retry_interval_micros=200000",
    )
    wait_for("the first try", lambda: "last entry was 32; expected 64" in server.printed())
    assert server.process.poll() is None, "it is tried again"
    assert server.exit_code() == REFUSED


def test_no_polling_at_all_hangs_the_start(start: Start, half: Path) -> None:
    server = start(f"--model_base_path={half}", "--file_system_poll_wait_seconds=-1")
    wait_for("the warning", lambda: "never polled" in server.printed())
    assert server.process.poll() is None
    assert not server.is_open(server.grpc_port)


@pytest.mark.skipif(not shutil.which("taskset"), reason="needs taskset")
def test_thread_counts_follow_the_cpus_that_it_may_run_on(binary: Path, half: Path, tmp_path: Path) -> None:
    allowed = min(os.sched_getaffinity(0))
    flags = [
        "--port=0",
        f"--grpc_socket_path={tmp_path / 's'}",
        f"--model_base_path={half}",
        "--enable_batching",
    ]
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["taskset", "--cpu-list", str(allowed), str(binary), *flags],
            env={"PATH": os.environ["PATH"], "SIM_ALLOW_ANY_GPU": "1"},
            stdout=out,
            stderr=out,
        )
    try:
        wait_for("the server", lambda: "Running gRPC" in log.read_text())
    finally:
        process.kill()
        process.wait()
    assert "with 1 CPUs" in log.read_text()
    assert "batching with 1 threads" in log.read_text()


def test_an_unknown_knob_is_refused(start: Start, half: Path) -> None:
    assert start(f"--model_base_path={half}", env={"SIM_SLOW": "1"}).exit_code() == REFUSED


def test_the_stock_script_runs_the_server_as_a_child_that_keeps_its_flags_last(half: Path) -> None:
    script = (Path(__file__).parents[2] / "images" / "tf_serving_entrypoint.sh").read_text()
    command = script.splitlines()[-1]
    assert command.startswith("tensorflow_model_server --port=8500 --rest_api_port=8501 ")
    assert command.endswith(' "$@"')
    assert "exec" not in command
