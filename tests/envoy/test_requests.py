"""What a real Envoy lets through to two pools, what it answers itself, and what it never shows."""

import http.client
import json
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest

from tests.envoy.harness import PREDICT, Site, site, wait_for
from tests.envoy.pools import TWO_POOLS

pytestmark = pytest.mark.envoy

MIB = 1024 * 1024
VISION = {"gpu-01-gpu0", "gpu-01-gpu1"}
TEXT = {"gpu-01-gpu2", "gpu-01-gpu3"}
MODEL_SERVICE = "/tensorflow.serving.ModelService"
PREDICTION_SERVICE = "/tensorflow.serving.PredictionService"


@pytest.fixture(scope="module")
def pools(envoy_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("envoy")
    with site(envoy_binary, folder, TWO_POOLS, {"max_request_mib": 2}) as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_seen_yet(pools: Site) -> None:
    for backend in pools.backends.values():
        backend.behave({"seen": [], "delay_s": 0, "answer": "ok", "forging": False, "states": {}})


def seen(pools: Site) -> list[str]:
    """What reached any server, as `METHOD target`, or the gRPC method."""
    return [" ".join(line.split(" ")[:2]) for backend in pools.backends.values() for line in backend.seen()]


REST_PASSED = [
    ("POST", "/v1/models/bert:predict"),
    ("POST", "/v1/models/bert:classify"),
    ("POST", "/v1/models/bert:regress"),
    ("POST", "/v1/models/bert/versions/3:predict"),
    ("POST", "/v1/models/bert/labels/stable:predict"),
    ("POST", "/v1/models/bert:predict?query=passed"),
    ("GET", "/v1/models/bert"),
    ("GET", "/v1/models/bert/metadata"),
    ("GET", "/v1/models/bert/versions/3"),
    ("GET", "/v1/models/bert/versions/3/metadata"),
    ("GET", "/v1/models/bert/labels/stable/metadata"),
]

REST_REFUSED = [
    ("GET", "/v1/models/bert:predict", 404),
    ("PUT", "/v1/models/bert:predict", 404),
    ("DELETE", "/v1/models/bert", 404),
    ("HEAD", "/v1/models/bert", 404),
    ("OPTIONS", "/v1/models/bert", 404),
    ("POST", "/v1/models/bert", 404),
    ("POST", "/v1/models/bert/metadata", 404),
    ("POST", "/v1/models/bertha:predict", 404),
    ("POST", "/v1/models/Bert:predict", 404),
    ("POST", "/V1/MODELS/BERT:PREDICT", 404),
    ("POST", "/v1/models/bert:Predict", 404),
    ("POST", "/v1/models/bert:explain", 404),
    ("POST", "/v1/models/bert:predict/", 404),
    ("POST", "/v1/models/bert:predict;x", 404),
    ("POST", "/v1/models/bert:predict%20", 404),
    ("POST", "/v1/models/bert%3Apredict", 404),
    ("POST", "/v1/models/bert%3apredict", 404),
    ("POST", "/v1/models/bert:predict%00", 400),
    ("POST", "/v1/models/bert%2fversions%2f3:predict", 400),
    ("POST", "/v1%5Cmodels%5Cbert:predict", 400),
    ("POST", "/v1/models/res-net:predict", 404),
    ("POST", "/v1/models/bert/versions/latest:predict", 404),
    ("POST", "/v1/models/bert/versions/3/labels/stable:predict", 404),
    ("GET", "/v1/models", 404),
    ("GET", "/v1/models/", 404),
    ("GET", "/v1", 404),
    ("GET", "/", 404),
    ("GET", "/monitoring/prometheus/metrics", 404),
    ("GET", "/MONITORING/PROMETHEUS/METRICS", 404),
    ("GET", "/v1/models/../../monitoring/prometheus/metrics", 404),
    ("GET", "/v1/models/%2e%2e/%2e%2e/monitoring/prometheus/metrics", 404),
    ("GET", "/v1/models/bert/..%2f..%2f..%2fmonitoring/prometheus/metrics", 400),
    ("GET", "/v1/models/bert/..\\..\\..\\monitoring/prometheus/metrics", 404),
    ("GET", "http://bert/monitoring/prometheus/metrics", 404),
    ("GET", "/metrics", 404),
    ("GET", "/instances/gpu-01-gpu0/metrics", 404),
    ("GET", "/stats", 404),
    ("GET", "/ready", 404),
    ("GET", "/config_dump", 404),
    ("POST", "/quitquitquit", 404),
    ("GET", "/healthz/", 404),
    ("GET", "/healthz?x", 404),
    ("POST", f"{MODEL_SERVICE}/HandleReloadConfigRequest", 404),
    ("POST", PREDICT, 404),
]


@pytest.mark.parametrize(("method", "path"), REST_PASSED)
def test_a_request_on_the_list_reaches_an_instance_of_the_models_pool(
    pools: Site, method: str, path: str
) -> None:
    answer = pools.rest(method, path, b"{}" if method == "POST" else None)
    assert answer.status == 200
    assert answer.served_by in TEXT
    assert seen(pools) == [f"{method} {path}"]


@pytest.mark.parametrize(("method", "path", "status"), REST_REFUSED)
def test_any_other_request_is_refused_and_reaches_no_instance(
    pools: Site, method: str, path: str, status: int
) -> None:
    answer = pools.rest(method, path, b"{}" if method == "POST" else None)
    assert answer.status == status
    if method != "HEAD":
        assert list(answer.json()) == ["error"]
    assert answer.headers["content-type"] == "application/json"
    assert b"gpu" not in answer.body
    assert b"vision" not in answer.body
    assert "x-served-by" not in answer.headers
    assert seen(pools) == []


@pytest.mark.parametrize(
    ("path", "reaches"),
    [
        ("//v1//models///bert:predict", "/v1/models/bert:predict"),
        ("/v1/models/resnet/../bert:predict", "/v1/models/bert:predict"),
        ("/x/%2e%2e/v1/models/bert:predict", "/v1/models/bert:predict"),
    ],
)
def test_an_odd_spelling_of_a_path_is_passed_on_as_the_path_that_was_checked(
    pools: Site, path: str, reaches: str
) -> None:
    assert pools.rest("POST", path, b"{}").served_by in TEXT
    assert seen(pools) == [f"POST {reaches}"]


def test_an_instance_cannot_name_another_as_the_one_that_answered(pools: Site) -> None:
    for backend in pools.backends.values():
        backend.behave({"forging": True})
    rest = pools.predict("bert")
    assert rest.served_by == rest.json()["served_by"]
    answer, served_by = pools.grpc(PREDICT, b"", [("x-tf-model", "bert")])
    assert served_by == json.loads(answer)["served_by"]


def test_a_dot_in_a_models_name_is_a_dot(pools: Site) -> None:
    assert pools.predict("res.net").served_by in VISION
    assert pools.predict("resnet").served_by in VISION
    assert pools.predict("resxnet").status == 404


def test_a_client_cannot_steer_envoy_or_name_the_instance_by_headers(pools: Site) -> None:
    for backend in pools.backends.values():
        backend.behave({"delay_s": 0.1})
    steering = {
        "x-envoy-upstream-rq-timeout-ms": "5",
        "x-envoy-upstream-rq-per-try-timeout-ms": "5",
        "x-envoy-retry-on": "5xx",
        "x-envoy-max-retries": "99",
        "x-envoy-original-dst-host": "127.0.0.1:1",
        "x-served-by": "mallory",
    }
    answer = pools.rest("POST", "/v1/models/bert:predict", b"{}", steering)
    assert answer.status == 200
    assert answer.json()["served_by"] == answer.served_by
    [request] = [line for backend in pools.backends.values() for line in backend.seen()]
    assert "mallory" not in request
    assert "max-retries" not in request


def test_a_header_with_an_underscore_is_refused(pools: Site) -> None:
    assert pools.rest("GET", "/v1/models/bert", None, {"x_tf": "1"}).status == 400


@pytest.mark.parametrize("metadata", [[("x-tf-model", "bert")], [("x-tf-model", "resnet")]])
def test_a_grpc_request_goes_to_the_pool_of_the_model_in_its_header(
    pools: Site, metadata: list[tuple[str, str]]
) -> None:
    for method in ("Predict", "Classify", "Regress", "MultiInference", "GetModelMetadata"):
        answer, served_by = pools.grpc(f"{PREDICTION_SERVICE}/{method}", b"message", metadata)
        assert json.loads(answer) == {"served_by": served_by, "bytes": len(b"message")}
        assert served_by in (TEXT if metadata[0][1] == "bert" else VISION)
    _, served_by = pools.grpc(f"{MODEL_SERVICE}/GetModelStatus", b"", metadata)
    assert served_by in (TEXT if metadata[0][1] == "bert" else VISION)


@pytest.mark.parametrize(
    ("metadata", "status", "says"),
    [
        ([], grpc.StatusCode.INVALID_ARGUMENT, "x-tf-model"),
        ([("x-tf-model", "")], grpc.StatusCode.NOT_FOUND, "no such model"),
        ([("x-tf-model", "Bert")], grpc.StatusCode.NOT_FOUND, "no such model"),
    ],
)
def test_a_grpc_request_that_names_no_model_of_ours_is_told_so(
    pools: Site, metadata: list[tuple[str, str]], status: grpc.StatusCode, says: str
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        pools.grpc(PREDICT, b"", metadata)
    assert refused.value.code() is status
    assert says in str(refused.value.details())
    assert seen(pools) == []


@pytest.mark.parametrize(
    "path",
    [
        f"{MODEL_SERVICE}/HandleReloadConfigRequest",
        f"{PREDICTION_SERVICE}/../tensorflow.serving.ModelService/HandleReloadConfigRequest",
        f"{PREDICTION_SERVICE}/predict",
        "/tensorflow.serving.SessionService/SessionRun",
        "/tensorflow-serving.PredictionService/Predict",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "/healthz/x",
    ],
)
def test_any_other_grpc_method_is_denied_and_reaches_no_instance(pools: Site, path: str) -> None:
    with pytest.raises(grpc.RpcError) as denied:
        pools.grpc(path, b"", [("x-tf-model", "bert")])
    assert denied.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert seen(pools) == []


def test_a_body_up_to_the_limit_arrives_whole_and_a_larger_one_gets_413(pools: Site) -> None:
    path = "/v1/models/bert:predict"
    assert pools.rest("POST", path, b"x" * 2 * MIB).json()["bytes"] == 2 * MIB
    too_large = pools.rest("POST", path, b"x" * (2 * MIB + 1))
    assert too_large.status == 413
    assert list(too_large.json()) == ["error"]


def test_a_body_of_unknown_length_over_the_limit_gets_413(pools: Site) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", pools.plan.spec.rest_port, timeout=30)
    chunks = (b"x" * (MIB // 2) for _ in range(5))
    try:
        connection.request("POST", "/v1/models/bert:predict", body=chunks, encode_chunked=True)
        assert connection.getresponse().status == 413
    except BrokenPipeError:
        # Envoy answered and closed while the client was still sending.
        assert connection.sock is None or b" 413 " in connection.sock.recv(100)
    finally:
        connection.close()
    assert seen(pools) == []


def test_a_grpc_message_over_the_limit_gets_resource_exhausted(pools: Site) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        pools.grpc(PREDICT, b"x" * (2 * MIB + 1), [("x-tf-model", "bert")])
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/metrics", 200),
        ("/instances/gpu-01-gpu0/metrics", 200),
        ("/instances/gpu-01-gpu9/metrics", 404),
        ("/instances/gpu-01-gpu0/v1/models/resnet", 404),
        ("/metrics?filter=x", 404),
        ("/metrics/../config_dump", 404),
        ("/metrics/..%2fconfig_dump", 400),
        ("/stats", 404),
        ("/config_dump", 404),
        ("/quitquitquit", 404),
        ("/", 404),
    ],
)
def test_the_metrics_port_shows_metrics_and_nothing_else(pools: Site, path: str, status: int) -> None:
    assert pools.metrics(path).status == status
    assert seen(pools) == []


def test_the_metrics_pages_are_envoys_and_the_instances_own(pools: Site) -> None:
    assert b"envoy_cluster_membership_healthy" in pools.metrics("/metrics").body
    for name in (*VISION, *TEXT):
        assert pools.metrics(f"/instances/{name}/metrics").body == f'up{{instance="{name}"}} 1\n'.encode()


@pytest.mark.parametrize("path", ["/config_dump", "/quitquitquit", "/logging", "/drain_listeners", "/help"])
def test_admin_itself_gives_away_and_changes_nothing(pools: Site, path: str) -> None:
    assert pools.admin(path).status == 403


def test_the_log_names_the_instance_and_leaves_out_health_checks(pools: Site) -> None:
    assert pools.rest("GET", "/healthz").status == 200
    path = "/v1/models/bert/labels/logged:predict"
    answer = pools.rest("POST", path, b"{}")
    _, served_by = pools.grpc(PREDICT, b"", [("x-tf-model", "resnet")])

    def logged(route: str, path: str) -> list[dict[str, object]]:
        return [line for line in pools.log_lines() if (line["route"], line["path"]) == (route, path)]

    wait_for("the REST line", lambda: logged("prediction:bert", path) != [])
    # There are lines of others: the last one is this one once it is there.
    lines = partial(logged, "grpc:resnet", PREDICT)
    wait_for("the gRPC line", lambda: [line["instance"] for line in lines()][-1:] == [served_by])
    [rest] = logged("prediction:bert", path)
    assert (rest["instance"], rest["listener"], rest["status"]) == (answer.served_by, "rest", 200)
    assert not [line for line in pools.log_lines() if line["path"] == "/healthz"]


def test_a_client_that_never_ends_its_headers_is_cut_off(pools: Site) -> None:
    with socket.create_connection(("127.0.0.1", pools.plan.spec.rest_port), 20) as client:
        client.sendall(b"GET /v1/models/bert HTTP/1.1\r\nHost: x\r\n")
        assert b" 408 " in client.recv(1000)
