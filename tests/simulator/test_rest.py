"""Paths, bodies and status codes of the REST API."""

import gzip
import json
from typing import Any

import pytest

from tests.simulator.conftest import Start
from tests.simulator.server import GPU, Server, publish

pytestmark = pytest.mark.simulator
PREDICT = "/v1/models/half:predict"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"instances": [1.0, 2.0, 5.0]}, {"predictions": [2.5, 3.0, 4.5]}),
        ({"instances": [[1], [2]]}, {"predictions": [[2.5], [3.0]]}),
        ({"instances": [{"x": 1}, {"x": 2}]}, {"predictions": [2.5, 3.0]}),
        ({"inputs": [1, 2]}, {"outputs": [2.5, 3.0]}),
        ({"inputs": {"x": [[1, 2], [3, 4]]}}, {"outputs": [[2.5, 3.0], [3.5, 4.0]]}),
        ({"inputs": 1}, {"outputs": 2.5}),
        ({"signature_name": "serving_default", "instances": [0]}, {"predictions": [2.0]}),
        ({"instances": [1e20]}, {"predictions": [5e19]}),
    ],
)
def test_predict_answers_in_the_format_of_the_question(server: Server, body: Any, expected: Any) -> None:
    reply = server.rest(PREDICT, body)
    assert (reply.status, reply.json) == (200, expected)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "The document is empty"),
        (b"{", 400, "JSON Parse error"),
        (b"[1]", 400, "Is not object"),
        ({}, 400, "Missing 'inputs' or 'instances' key"),
        ({"inputs": [1], "instances": [1]}, 400, "expecting only one of 'inputs' or 'instances'"),
        ({"instances": 1}, 400, "Expecting 'instances' to be an list/array"),
        ({"instances": []}, 400, "No values in 'instances' array"),
        ({"instances": ["a"]}, 400, "is not of expected type: float"),
        ({"instances": [[1], [1, 2]]}, 400, "unexpected size: 2 at level: 1 expected size: 1"),
        ({"instances": [[1], 2]}, 400, "found at incorrect level"),
        ({"instances": [{"z": 1}]}, 400, "does not have named input: z"),
        ({"instances": [{"x": 1}, 2]}, 400, "Expecting object but got list at item 1"),
        ({"inputs": {"z": 1}}, 400, "Missing named input: x"),
        ({"signature_name": 1, "instances": [1]}, 400, "'signature_name' key must be a string"),
        ({"signature_name": "other", "instances": [1]}, 400, "not found in signature def"),
    ],
)
def test_a_bad_question_is_answered_with_its_mistake(
    server: Server, body: Any, status: int, message: str
) -> None:
    reply = server.rest(PREDICT, body)
    assert reply.status == status
    assert message in reply.json["error"]


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/", 404, None),
        ("GET", "/healthz", 404, None),
        ("GET", "/metrics", 404, None),
        ("GET", "/monitoring/prometheus/metrics", 404, None),
        ("GET", "/v1/models", 400, "Missing model name in request."),
        ("GET", "/v1/models/other", 404, "Could not find any versions of model other"),
        ("GET", "/v1/models/half/versions/9", 404, "Could not find version 9 of model half"),
        (
            "GET",
            "/v1/models/half/versions/canary",
            400,
            "Malformed request: GET /v1/models/half/versions/canary",
        ),
        ("GET", "/v1/models/half/versions/99999999999999999999", 400, "Failed to convert version"),
        ("GET", "/v1/models/other/metadata", 404, "Servable not found for request: Latest(other)"),
        ("GET", "/v1/models/half/versions/9/metadata", 404, "Specific(half, 9)"),
        ("GET", "/v1/models/half/labels/none/metadata", 400, "Unrecognized servable version label: none"),
        ("GET", PREDICT, 400, "Malformed request: GET /v1/models/half:predict"),
        ("POST", "/v1/models/half", 400, "Malformed request: POST /v1/models/half"),
        ("POST", "/v1/models/half:Predict", 400, "Malformed request"),
        ("POST", "/v1/models/half/versions/canary:predict", 400, "Malformed request"),
        ("POST", "/v1/models/other:predict", 404, "Servable not found for request: Latest(other)"),
        ("POST", "/v1/models/half/versions/9:predict", 404, "Specific(half, 9)"),
        ("PUT", PREDICT, 400, "Malformed request: PUT"),
        ("DELETE", "/v1/models/half", 400, "Malformed request: DELETE"),
    ],
)
def test_paths_and_methods(server: Server, method: str, path: str, status: int, message: str | None) -> None:
    reply = server.rest(path, json.dumps({"instances": [1]}).encode() if method != "GET" else None, method)
    assert reply.status == status
    assert message is None or message in reply.json["error"]


@pytest.mark.parametrize(
    "path", ["/V1/Models/half:predict", "/v1/models/half/versions/1:predict", "/v1/models/hal%66:predict"]
)
def test_paths_match_in_any_case_and_are_unescaped(server: Server, path: str) -> None:
    assert server.rest(path, {"instances": [1]}).json == {"predictions": [2.5]}


def test_status_is_spaced_as_the_real_server_writes_it(server: Server) -> None:
    # Health checks look for this text; protojson's own spacing differs from build to build.
    assert '"state": "AVAILABLE"' in server.rest("/v1/models/half").text


def test_status_shows_every_version_and_ignores_labels(server: Server) -> None:
    expected = {
        "model_version_status": [
            {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
        ]
    }
    for path in ("/v1/models/half", "/v1/models/half/versions/1", "/v1/models/half/labels/no_such_label"):
        reply = server.rest(path)
        assert (reply.status, reply.json) == (200, expected)


def test_metadata_names_the_version_and_its_signatures(server: Server) -> None:
    reply = server.rest("/v1/models/half/metadata")
    assert reply.json["model_spec"] == {"name": "half", "signature_name": "", "version": "1"}
    signature = reply.json["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    assert list(signature["inputs"]) == ["x"]
    assert list(signature["outputs"]) == ["y"]
    assert signature["inputs"]["x"]["dtype"] == "DT_FLOAT"
    assert [dim["size"] for dim in signature["inputs"]["x"]["tensor_shape"]["dim"]] == ["-1", "1"]


def test_every_answer_names_the_gpu_and_predictions_the_version(server: Server) -> None:
    for instances in ([1.0], []):
        body = {"instances": instances}
        assert server.rest(PREDICT, body).headers["x-simulator-gpu"] == GPU
    assert server.rest(PREDICT, {"instances": [1]}).headers["x-simulator-model"] == "half/1"


@pytest.mark.parametrize(
    ("method", "body", "expected"),
    [
        (
            "classify",
            {"signature_name": "classify_x_to_y", "examples": [{"x": 1.0}, {"x": [2.0]}]},
            [[["", 2.5]], [["", 3.0]]],
        ),
        ("regress", {"signature_name": "regress_x_to_y", "examples": [{"x": 1.0}]}, [2.5]),
        (
            "regress",
            {"signature_name": "regress_x_to_y", "context": {"x": 3.0}, "examples": [{}, {"x": 1.0}]},
            [3.5, 2.5],
        ),
    ],
)
def test_examples_are_classified_and_regressed(server: Server, method: str, body: Any, expected: Any) -> None:
    reply = server.rest(f"/v1/models/half:{method}", body)
    assert (reply.status, reply.json) == (200, {"results": expected})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"examples": [{"x": 1.0}]}, "No classification or regression inputs"),
        (
            {"signature_name": "regress_x_to_y", "examples": {"x": 1.0}},
            "Expecting 'examples' value to be an list",
        ),
        ({"signature_name": "regress_x_to_y", "examples": [1.0]}, "Example must be JSON object"),
        ({"signature_name": "regress_x_to_y", "examples": [{"x": None}]}, "unexpected JSON type: Null"),
        (
            {"signature_name": "regress_x_to_y", "examples": [{"z": 1.0}]},
            "is required but could not be found",
        ),
        ({"signature_name": "regress_x_to_y", "examples": []}, "Input is empty"),
        (
            {"signature_name": "no_such", "examples": [{"x": 1.0}]},
            "No signature was found with the name: no_such",
        ),
    ],
)
def test_bad_examples_are_refused(server: Server, body: Any, message: str) -> None:
    reply = server.rest("/v1/models/half:regress", body)
    assert reply.status == 400
    assert message in reply.json["error"]


def test_a_zipped_body_is_unzipped(server: Server) -> None:
    body = gzip.compress(json.dumps({"instances": [1]}).encode())
    assert server.rest(PREDICT, body, headers={"Content-Encoding": "gzip"}).json == {"predictions": [2.5]}


def test_cors_headers_come_only_when_asked_for(start: Start, server: Server, half: Any) -> None:
    assert "access-control-allow-origin" not in server.rest(PREDICT, {"instances": [1]}).headers
    allowing = start(
        "--model_name=half", f"--model_base_path={half}", "--rest_api_enable_cors_support"
    ).ready()
    assert allowing.rest(PREDICT, {"instances": [1]}).headers["access-control-allow-origin"] == "*"
    preflight = allowing.rest(PREDICT, method="OPTIONS", headers={"Origin": "https://a.example"})
    assert (preflight.status, preflight.headers["access-control-allow-methods"]) == (200, "POST, GET")
    assert allowing.rest(PREDICT, method="OPTIONS").status == 400


def test_a_request_that_takes_longer_than_the_rest_timeout_is_a_504(start: Start, half: Any) -> None:
    env = {"SIM_BASE_MS": "200"}
    server = start(
        "--model_name=half", f"--model_base_path={half}", "--rest_api_timeout_in_ms=20", env=env
    ).ready()
    assert server.rest(PREDICT, {"instances": [1]}).status == 504


def test_a_version_is_asked_by_number(server: Server, half: Any) -> None:
    publish(half, 2)
    server.wait_states("half", {1: "END", 2: "AVAILABLE"})
    assert (
        server.rest("/v1/models/half/versions/2:predict", {"instances": [1]}).headers["x-simulator-model"]
        == "half/2"
    )
    assert server.rest("/v1/models/half/versions/1:predict", {"instances": [1]}).status == 404
