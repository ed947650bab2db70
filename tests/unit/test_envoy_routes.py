"""Envoy's routes as data: what leads where, for how long, and what leads nowhere."""

import itertools
import re

import pytest

from components.plan import FrontEndPlan
from tests.envoy.pools import TWO_POOLS, front_end
from tests.envoy.reading import SHAPES, clusters, manager, route_for, routes, virtual_host

DURATION = re.compile(r"[0-9]+(\.[0-9]{1,3})?s")


def cluster_for(plan: FrontEndPlan, method: str, path: str) -> str | None:
    """Where the first route that matches sends a REST request; None: Envoy itself refuses it."""
    route = route_for(routes(plan, "rest"), path, {":method": method})
    return str(route["route"]["cluster"]) if "route" in route else None


every_shape = pytest.mark.parametrize("plan", SHAPES.values(), ids=SHAPES)


@every_shape
def test_every_route_that_leads_somewhere_has_a_timeout(plan: FrontEndPlan) -> None:
    for name in ("rest", "grpc", "metrics"):
        for route in routes(plan, name):
            assert "direct_response" in route or DURATION.fullmatch(route["route"]["timeout"])


@pytest.mark.parametrize(("timeout", "one_try"), [(60, "24s"), (30, "12s"), (1, "0.4s"), (3, "1.2s")])
def test_request_timeout_shows_on_every_route_and_leaves_time_to_try_again(
    timeout: int, one_try: str
) -> None:
    plan = front_end(TWO_POOLS, settings={"request_timeout_s": timeout})
    for name in ("rest", "grpc"):
        actions = [route["route"] for route in routes(plan, name) if "route" in route]
        assert {action["timeout"] for action in actions} == {f"{timeout}s"}
        host = virtual_host(plan, name)
        assert host["retry_policy"]["per_try_timeout"] == one_try


@pytest.mark.parametrize("timeout", [1, 30, 3600])
def test_a_stream_may_be_silent_for_as_long_as_a_request_may_take(timeout: int) -> None:
    plan = front_end(settings={"request_timeout_s": timeout})
    for name in ("rest", "grpc"):
        assert float(manager(plan, name)["stream_idle_timeout"].rstrip("s")) > timeout
        assert manager(plan, name)["request_timeout"] == f"{timeout}s"


@every_shape
def test_a_retry_looks_for_another_instance(plan: FrontEndPlan) -> None:
    for name in ("rest", "grpc"):
        host = virtual_host(plan, name)
        [predicate] = host["retry_policy"]["retry_host_predicate"]
        assert predicate["name"].endswith("previous_hosts")
        assert "reset" in host["retry_policy"]["retry_on"].split(",")


@every_shape
def test_one_virtual_host_takes_every_domain(plan: FrontEndPlan) -> None:
    for name in ("rest", "grpc", "metrics"):
        host = virtual_host(plan, name)
        assert host["domains"] == ["*"]


@every_shape
def test_what_refuses_the_rest_comes_last_and_only_last(plan: FrontEndPlan) -> None:
    for name in ("rest", "grpc", "metrics"):
        catch_all = [i for i, route in enumerate(routes(plan, name)) if route["match"] == {"prefix": "/"}]
        assert catch_all == [len(routes(plan, name)) - 1]
        assert "direct_response" in routes(plan, name)[-1]


@every_shape
def test_a_plain_predictions_path_is_compared_before_any_expression_is_tried(
    plan: FrontEndPlan,
) -> None:
    """An expression costs a microsecond or two, and each model before its own would add one."""
    models = {name for pool in plan.leading for name in pool.model_names}
    first = list(
        itertools.takewhile(lambda match: "path" in match, (r["match"] for r in routes(plan, "rest")))
    )
    assert {match["path"] for match in first} == {f"/v1/models/{name}:predict" for name in models}


@every_shape
def test_routes_have_names_of_their_own_and_lead_to_clusters_that_exist(plan: FrontEndPlan) -> None:
    there = {"admin", *clusters(plan)}
    for name in ("rest", "grpc", "metrics"):
        names = [route["name"] for route in routes(plan, name)]
        assert len(set(names)) == len(names)
        targets = {route["route"]["cluster"] for route in routes(plan, name) if "route" in route}
        assert targets <= there


@pytest.mark.parametrize("suffix", ["", "/versions/12", "/labels/canary"])
@pytest.mark.parametrize(("model", "cluster"), [("resnet", "rest-vision"), ("bert", "rest-text")])
def test_the_path_decides_the_pool(model: str, cluster: str, suffix: str) -> None:
    plan = front_end(TWO_POOLS)
    path = f"/v1/models/{model}{suffix}"
    for verb in ("predict", "classify", "regress"):
        assert cluster_for(plan, "POST", f"{path}:{verb}") == cluster
        assert cluster_for(plan, "GET", f"{path}:{verb}") is None
    for page in ("", "/metadata"):
        assert cluster_for(plan, "GET", f"{path}{page}") == cluster
        assert cluster_for(plan, "POST", f"{path}{page}") is None


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/res-net:predict",  # res.net is a model: its dot is a dot
        "/v1/models/Bert:predict",
        "/V1/models/bert:predict",
        "/v1/models/bert:Predict",
        "/v1/models/bertha:predict",
        "/v1/models/bert/versions/latest:predict",
        "/v1/models/bert/labels/a-b:predict",
        "/v1/models/bert:predict/",
        "/v1/models/bert:predict;x",
        "/v1/models/bert:explain",
        "/v1/models/:predict",
        "/monitoring/prometheus/metrics",
        "/",
    ],
)
def test_what_is_not_on_the_list_leads_nowhere(path: str) -> None:
    plan = front_end(TWO_POOLS)
    assert cluster_for(plan, "POST", path) is None
    assert cluster_for(plan, "GET", path) is None


def test_grpc_passes_inference_and_status_but_no_change_of_models() -> None:
    found = {
        route["match"]["safe_regex"]["regex"]
        for route in routes(front_end(TWO_POOLS), "grpc")
        if "safe_regex" in route["match"]
    }
    regex = "|".join(found)
    prediction = ("Predict", "Classify", "Regress", "MultiInference", "GetModelMetadata")
    for method in prediction:
        assert re.fullmatch(regex, f"/tensorflow.serving.PredictionService/{method}")
    assert re.fullmatch(regex, "/tensorflow.serving.ModelService/GetModelStatus")
    for path in (
        "/tensorflow.serving.ModelService/HandleReloadConfigRequest",
        "/tensorflow.serving.SessionService/SessionRun",
        "/tensorflow.serving.PredictionService/predict",
        "/tensorflow-serving.PredictionService/Predict",
    ):
        assert not re.fullmatch(regex, path)


def test_one_pool_takes_every_grpc_request_and_several_go_by_header() -> None:
    predict = "/tensorflow.serving.PredictionService/Predict"
    for headers in ({}, {"x-tf-model": "bert"}):
        assert route_for(routes(front_end(), "grpc"), predict, headers)["route"]["cluster"] == "grpc-main"
    two = routes(front_end(TWO_POOLS), "grpc")
    for model, cluster in {"resnet": "grpc-vision", "res.net": "grpc-vision", "bert": "grpc-text"}.items():
        assert route_for(two, predict, {"x-tf-model": model})["route"]["cluster"] == cluster
    for headers in ({}, {"x-tf-model": "none"}):
        assert "direct_response" in route_for(two, predict, headers)
