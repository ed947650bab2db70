"""The gRPC services: what they answer, and which of them are there at all."""

import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format

from tests.simulator import wire
from tests.simulator.conftest import Start
from tests.simulator.server import GPU, Server, model, models_config, publish, wait_for
from tests.simulator.wire import MODEL, PREDICTION, PROFILER, floats

pytestmark = pytest.mark.simulator
HEALTH = "grpc.health.v1.Health"


def half(**more: Any) -> dict[str, Any]:
    return {"name": "half", **more}


def test_predict_computes_and_says_who_answered(server: Server) -> None:
    reply = server.grpc(PREDICTION, "Predict", {"model_spec": half(), "inputs": {"x": floats(1, 2)}})
    assert reply.code == "OK"
    assert reply.response["outputs"]["y"] == {
        **reply.response["outputs"]["y"],
        "dtype": "DT_FLOAT",
        "float_val": [2.5, 3.0],
    }
    assert reply.response["model_spec"] == {
        "name": "half",
        "version": "1",
        "signature_name": "serving_default",
    }
    assert reply.metadata["x-simulator-gpu"] == GPU
    assert reply.metadata["x-simulator-model"] == "half/1"


@pytest.mark.parametrize(
    ("request_body", "code", "message"),
    [
        ({}, "INVALID_ARGUMENT", "Missing ModelSpec"),
        ({"model_spec": {}}, "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        ({"model_spec": {"name": "other"}}, "NOT_FOUND", "Servable not found for request: Latest(other)"),
        ({"model_spec": half(version=7)}, "NOT_FOUND", "Servable not found for request: Specific(half, 7)"),
        (
            {"model_spec": half(version_label="none")},
            "INVALID_ARGUMENT",
            "Unrecognized servable version label: none",
        ),
        (
            {"model_spec": half(signature_name="no")},
            "INVALID_ARGUMENT",
            'Serving signature key "no" not found.',
        ),
        ({"model_spec": half(), "inputs": {"z": floats(1)}}, "INVALID_ARGUMENT", "not found in signature: z"),
        (
            {"model_spec": half(), "inputs": {}},
            "INVALID_ARGUMENT",
            "input size does not match signature: 0!=1",
        ),
        (
            {"model_spec": half(), "inputs": {"x": floats(1)}, "output_filter": ["q"]},
            "INVALID_ARGUMENT",
            "output tensor alias not found in signature: q",
        ),
        ({"model_spec": half(), "inputs": {"x": {"dtype": "DT_INT64"}}}, "INVALID_ARGUMENT", "of type float"),
        (
            {"model_spec": half(), "inputs": {"x": floats(1, 2, shape=(1,))}},
            "INVALID_ARGUMENT",
            "parsing error",
        ),
    ],
)
def test_a_bad_request_has_its_code(
    server: Server, request_body: dict[str, Any], code: str, message: str
) -> None:
    reply = server.grpc(PREDICTION, "Predict", request_body)
    assert reply.code == code
    assert message in reply.message
    assert reply.metadata["x-simulator-gpu"] == GPU


def test_examples_are_classified_and_regressed(server: Server) -> None:
    examples = {
        "example_list": {"examples": [{"features": {"feature": {"x": {"float_list": {"value": [1]}}}}}]}
    }
    spec = half(signature_name="classify_x_to_y")
    reply = server.grpc(PREDICTION, "Classify", {"model_spec": spec, "input": examples})
    assert reply.response["result"] == {"classifications": [{"classes": [{"label": "", "score": 2.5}]}]}
    spec = half(signature_name="regress_x_to_y")
    reply = server.grpc(PREDICTION, "Regress", {"model_spec": spec, "input": examples})
    assert reply.response["result"] == {"regressions": [{"value": 2.5}]}
    task = {"model_spec": spec, "method_name": "tensorflow/serving/regress"}
    reply = server.grpc(PREDICTION, "MultiInference", {"tasks": [task], "input": examples})
    assert reply.response["results"][0]["regression_result"] == {"regressions": [{"value": 2.5}]}


def test_metadata_holds_the_signatures_packed(server: Server) -> None:
    asked = {"model_spec": half(), "metadata_field": ["signature_def"]}
    reply = server.grpc(PREDICTION, "GetModelMetadata", asked)
    packed = reply.response["metadata"]["signature_def"]
    assert packed["@type"].endswith("tensorflow.serving.SignatureDefMap")
    assert "serving_default" in packed["signature_def"]
    assert server.grpc(PREDICTION, "GetModelMetadata", {"model_spec": half()}).code == "INVALID_ARGUMENT"


def test_model_status(server: Server) -> None:
    reply = server.grpc(MODEL, "GetModelStatus", {"model_spec": half()})
    assert [(one["version"], one["state"]) for one in reply.response["model_version_status"]] == [
        ("1", "AVAILABLE")
    ]
    assert server.grpc(MODEL, "GetModelStatus", {"model_spec": {"name": "other"}}).code == "NOT_FOUND"
    assert server.grpc(MODEL, "GetModelStatus", {}).code == "INVALID_ARGUMENT"


def is_serving(server: Server, service: str) -> bool:
    """What the health service says; False where it is not there or does not know the name."""
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        check = channel.unary_unary(f"/{HEALTH}/Check", lambda asked: asked, lambda answer: answer)
        asked = b"\x0a" + bytes([len(service)]) + service.encode() if service else b""
        try:
            return bool(check(asked, timeout=5) == b"\x08\x01")
        except grpc.RpcError:
            return False


@pytest.mark.parametrize(
    ("version", "flags", "known"),
    [
        ("2.14.1", [], set()),
        ("2.15.1", [], set()),
        ("2.15.1", ["--enable_grpc_healthcheck_service=true"], {"", "ModelService", "PredictionService"}),
    ],
)
def test_health_is_there_from_2_15_on_under_unqualified_names(
    start: Start, tmp_path: Path, version: str, flags: list[str], known: set[str]
) -> None:
    publish(tmp_path / "m", 1)
    env = {"TF_SERVING_SIMULATED_VERSION": version}
    server = start(f"--model_base_path={tmp_path / 'm'}", *flags, env=env).ready()
    names = ("", "ModelService", "PredictionService", "tensorflow.serving.PredictionService")
    assert {name for name in names if is_serving(server, name)} == known


def test_the_profiler_answers_anybody_unless_switched_off(
    start: Start, server: Server, tmp_path: Path
) -> None:
    assert server.grpc(PROFILER, "Monitor", {}).code == "OK"
    publish(tmp_path / "m", 1)
    silent = start(f"--model_base_path={tmp_path / 'm'}", "--enable_profiler=false").ready()
    assert silent.grpc(PROFILER, "Monitor", {}).code == "UNIMPLEMENTED"


def test_calls_beyond_the_thread_limit_are_refused(start: Start, tmp_path: Path) -> None:
    publish(tmp_path / "half", 1)
    server = start(
        "--model_name=half",
        f"--model_base_path={tmp_path / 'half'}",
        "--grpc_max_threads=2",
        env={"SIM_BASE_MS": "300"},
    ).ready()
    asked = {"model_spec": half(), "inputs": {"x": floats(1)}}
    codes: list[str] = []
    threads = [
        threading.Thread(target=lambda: codes.append(server.grpc(PREDICTION, "Predict", asked).code))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == ["OK", "OK", "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"]


def test_a_message_larger_than_four_megabytes_is_taken(server: Server) -> None:
    many = [0.0] * 2_000_000
    asked = {"model_spec": half(), "inputs": {"x": floats(*many)}}
    reply = server.grpc(PREDICTION, "Predict", asked, timeout_s=30)
    assert reply.code == "RESOURCE_EXHAUSTED", "the client's own limit, for the answer, is 4 MiB"
    assert "Received message larger than max" in reply.message
    wait_for("the server's count", lambda: server.states("half") == {1: "AVAILABLE"})


def test_a_unix_socket_can_take_the_place_of_the_port(start: Start, tmp_path: Path) -> None:
    publish(tmp_path / "half", 1)
    socket = tmp_path / "s"
    start(
        "--port=0",
        f"--grpc_socket_path={socket}",
        "--model_name=half",
        f"--model_base_path={tmp_path / 'half'}",
    ).ready()
    assert wire.call(f"unix:{socket}", MODEL, "GetModelStatus", {"model_spec": half()}).code == "OK"


def test_serialization_as_content_comes_with_2_19(start: Start, tmp_path: Path) -> None:
    publish(tmp_path / "half", 1)
    server = start(
        "--model_name=half",
        f"--model_base_path={tmp_path / 'half'}",
        "--enable_serialization_as_tensor_content",
        env={"TF_SERVING_SIMULATED_VERSION": "2.19.1"},
    ).ready()
    reply = server.grpc(PREDICTION, "Predict", {"model_spec": half(), "inputs": {"x": floats(1)}})
    assert reply.response["outputs"]["y"]["tensor_content"] == "AAAgQA=="


def test_a_reload_replaces_the_models(start: Start, tmp_path: Path) -> None:
    for name in ("a", "b"):
        publish(tmp_path / name, 1)
    config = tmp_path / "models.config"
    config.write_text(models_config(model("a", tmp_path / "a")))
    server = start(f"--model_config_file={config}").ready()
    next_one = wire.message(
        "tensorflow.serving.ModelServerConfig",
        {
            "model_config_list": {
                "config": [{"name": "b", "base_path": str(tmp_path / "b"), "model_platform": "tensorflow"}]
            }
        },
    )
    asked = {"config": json_format.MessageToDict(next_one)}
    reply = server.grpc(MODEL, "HandleReloadConfigRequest", asked)
    assert (reply.code, reply.response["status"]["error_code"]) == ("OK", "OK")
    assert server.states("b") == {1: "AVAILABLE"}
    server.wait_states("a", {1: "END"})
    refused = server.grpc(MODEL, "HandleReloadConfigRequest", {"config": {}})
    assert refused.code == "INVALID_ARGUMENT"


def test_a_reload_that_waits_for_a_model_blocks_the_next_one(start: Start, tmp_path: Path) -> None:
    publish(tmp_path / "a", 1)
    config = tmp_path / "models.config"
    config.write_text(models_config(model("a", tmp_path / "a")))
    server = start(f"--model_config_file={config}").ready()

    def reload(*names: str, timeout_s: float) -> str:
        models = [
            {"name": name, "base_path": str(tmp_path / name), "model_platform": "tensorflow"}
            for name in names
        ]
        asked = {"config": {"model_config_list": {"config": models}}}
        return server.grpc(MODEL, "HandleReloadConfigRequest", asked, timeout_s=timeout_s).code

    # Which of the two it is depends on whose clock is first, the client's or the server's.
    gave_up = {"DEADLINE_EXCEEDED", "CANCELLED"}
    assert reload("a", "absent", timeout_s=0.5) in gave_up
    assert reload("a", timeout_s=0.5) in gave_up, "the first one still holds the configuration"
    assert server.states("a") == {1: "AVAILABLE"}
    publish(tmp_path / "absent", 1)
    wait_for("the wedge to end", lambda: reload("a", timeout_s=2) == "OK")
