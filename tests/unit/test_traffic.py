"""Canaries, mirrors and versions by header: what a stack file may say, and the routes that it comes to."""

from typing import Any

import pytest

from components.envoy_targets import Target
from components.envoy_versions import model_spec
from components.front_end_plan import FrontEndPlan
from components.outputs import stack_outputs
from tests import stacks
from tests.envoy.pools import SmallPool, front_end
from tests.envoy.reading import pool_clusters, route_for, virtual_host
from tests.simulator.wire import message
from tests.stacks import Config, changed, one_node, plan, refusal

TRAFFIC = "pools[0].traffic"
CANARY = f"{TRAFFIC}.canary"
VERSIONS = {"versions": {"specific": [3, 4]}, "labels": {"stable": 3, "canary": 4}}


def two_pools() -> Config:
    """`main` on three GPUs with two labels, and `newer` on the fourth with one more version."""
    config = changed(one_node(), "pools[0].slots[0].gpus", [0, 1, 2])
    config["pools"][0]["models"][0] |= VERSIONS
    newer = {
        "name": "newer",
        "models": [{"name": "resnet50", "path": "/srv/models/resnet50", "versions": {"specific": [5]}}],
        "slots": [{"node": "gpu-01", "gpus": [3]}],
        "unbatched": True,
        "memory": {"container_mib": 4096},
    }
    return changed(config, "pools[1]", newer)


def two_models() -> Config:
    config = two_pools()
    config["pools"][0]["models"].append({"name": "bert", "path": "/srv/models/bert"})
    return config


REFUSED = [
    ({"percent": 5}, [f"{CANARY}: give exactly one: label: <label> or pool: <pool>"]),
    (
        {"percent": 5, "label": "canary", "pool": "newer"},
        [f"{CANARY}: give exactly one: label: <label> or pool: <pool>"],
    ),
    ({"label": "canary"}, [f"{CANARY}.percent: is required"]),
    (
        {"percent": 101, "label": "canary"},
        [f"{CANARY}.percent: 101: input should be less than or equal to 100"],
    ),
    ({"percent": 0.125, "pool": "newer"}, [f"{CANARY}.percent: 0.125: has more than two decimals"]),
    (
        {"percent": 5, "label": "stable"},
        [f"{CANARY}.label: 'stable': is also stable; the two must differ"],
    ),
    ({"percent": 5, "pool": "newer", "stable": "old"}, [f"{CANARY}.stable: 'old': only with label"]),
    (
        {"percent": 5, "label": "next"},
        [f"{CANARY}.label: 'next': resnet50 has no such label; add it to its labels"],
    ),
    (
        {"percent": 5, "label": "canary", "stable": "old"},
        [f"{CANARY}.stable: 'old': resnet50 has no such label; add it to its labels"],
    ),
    ({"percent": 5, "pool": "newest"}, [f"{CANARY}.pool: 'newest': no such pool; accepted: newer"]),
    ({"percent": 5, "pool": "main"}, [f"{CANARY}.pool: 'main': is this pool itself; name another one"]),
    (
        {"percent": 5, "pool": "newer", "models": ["bert"]},
        [f"{CANARY}.models[0]: 'bert': no model of main; accepted: resnet50"],
    ),
]


@pytest.mark.parametrize(("canary", "said"), REFUSED)
def test_a_canary_that_cannot_be_is_refused(canary: dict[str, Any], said: list[str]) -> None:
    config = two_pools()
    if "pool" not in canary:
        del config["pools"][1]
    found = refusal(changed(config, TRAFFIC, {"canary": canary}))
    assert [line for line in found if line.startswith("pools[0].traffic")] == said


def test_a_canary_of_nobody_need_not_have_its_label_yet() -> None:
    canary = {"percent": 0, "label": "next"}
    config = two_pools()
    del config["pools"][1]
    assert not stacks.problems(changed(config, TRAFFIC, {"canary": canary}))


def test_a_pool_that_helps_another_may_serve_its_models() -> None:
    # Without that, one model would lead to two pools.
    assert refusal(two_pools()) == ["pools[1].models[0].name: 'resnet50': is also served by pool main"]
    for traffic in ({"canary": {"percent": 0, "pool": "newer"}}, {"mirror": {"pool": "newer"}}):
        assert not stacks.problems(changed(two_pools(), TRAFFIC, traffic))


def test_a_helping_pool_serves_nothing_else() -> None:
    config = changed(two_pools(), TRAFFIC, {"mirror": {"pool": "newer"}})
    config["pools"][1]["models"].append({"name": "bert", "path": "/srv/models/bert"})
    config["pools"][1]["single"] = True
    assert refusal(config) == [f"{TRAFFIC}.mirror.pool: 'newer': serves bert, which main does not"]


def test_a_helping_pool_helps_and_is_not_helped() -> None:
    config = changed(two_pools(), TRAFFIC, {"canary": {"percent": 5, "pool": "newer"}})
    config = changed(config, "pools[1].traffic", {"mirror": {"pool": "main"}})
    assert (
        f"{CANARY}.pool: 'newer': only helps main, so it cannot name pools itself (traffic.mirror.pool)"
        in refusal(config)
    )


def test_a_helping_pool_is_on_the_nodes_of_the_other_and_on_no_further_one() -> None:
    config = stacks.two_nodes()
    config["pools"][1]["models"] = [{"name": "resnet50", "path": "/srv/models/resnet50"}]
    config = changed(config, TRAFFIC, {"mirror": {"pool": "text"}})
    assert refusal(config) == [f"{TRAFFIC}.mirror.pool: 'text': has no slot on gpu-01, where main has one"]
    config = stacks.in_staging(stacks.two_nodes())
    config["pools"][0]["models"] = [config["pools"][1]["models"][0]]
    config["pools"][0].pop("batching")
    config["pools"][1]["traffic"] = {"mirror": {"pool": "main"}}
    assert refusal(config) == [
        "pools[1].traffic.mirror.pool: 'main': has a slot on gpu-01, where text has none"
    ]


def test_a_canary_pool_serves_what_is_split() -> None:
    config = changed(two_models(), TRAFFIC, {"canary": {"percent": 5, "pool": "newer"}})
    assert refusal(config) == [
        f"{CANARY}.pool: 'newer': does not serve bert; name the models that it does in models"
    ]


def test_a_mirror_has_the_labels_that_copies_ask_for() -> None:
    traffic = {"canary": {"percent": 5, "label": "canary"}, "mirror": {"pool": "newer"}}
    config = changed(two_pools(), TRAFFIC, traffic)
    assert refusal(config) == [
        f"{TRAFFIC}.mirror.pool: 'newer': copies ask for labels that resnet50 has not there: canary, stable"
    ]
    labels = {"stable": 5, "canary": 5}
    assert not stacks.problems(changed(config, "pools[1].models[0].labels", labels))


def test_a_split_of_some_models_needs_grpc_requests_to_be_left_alone() -> None:
    canary = {"percent": 5, "pool": "newer", "models": ["resnet50"]}
    config = changed(two_models(), TRAFFIC, {"canary": canary})
    [said] = refusal(config)
    assert said.startswith(f"{CANARY}.models: ['resnet50']: leaves models of the pool out, and gRPC")
    assert said.endswith("or set front_end.versions.grpc: false")
    config["front_end"] = {"versions": {"grpc": False}}
    assert not stacks.problems(config)


def test_one_header_has_one_meaning() -> None:
    config = changed(one_node(), "front_end", {"versions": {"header": "x-user-id"}})
    assert refusal(config) == ["front_end.versions.header: 'x-user-id': is also user_header"]


def test_outputs_name_a_model_once() -> None:
    config = changed(two_pools(), TRAFFIC, {"mirror": {"pool": "newer"}})
    outputs = stack_outputs(stacks.settings(config), plan(config))
    assert [(model.name, model.pool) for model in outputs.models] == [("resnet50", "main")]
    assert len(outputs.instances) == 4


# Routes

LABELLED = {"name": "resnet", "path": "/srv/models/resnet", **VERSIONS}


def labelled(canary: dict[str, Any] | None, settings: dict[str, Any] | None = None) -> FrontEndPlan:
    traffic = {"traffic": {"canary": canary}} if canary else {}
    pool = SmallPool(instances=2, models=["resnet"], more={"models": [LABELLED], **traffic})
    return front_end([pool], settings=settings)


def rewritten(plan: FrontEndPlan, path: str = "/v1/models/resnet:predict", **headers: str) -> str:
    """What stands in the path's place, by the first route that takes the request."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    route = route_for(virtual_host(plan, "rest")["routes"], path, {":method": "POST", **named})
    action = route["route"] if "route" in route else route["direct_response"]
    return str(action.get("regex_rewrite", {}).get("substitution", action.get("status", "as it is")))


def test_without_a_canary_or_with_one_of_nobody_no_request_is_rewritten() -> None:
    for plan_ in (labelled(None), labelled({"percent": 0, "label": "canary", "sticky": True})):
        host = virtual_host(plan_, "rest")
        assert "matcher" not in host
        assert rewritten(plan_) == "as it is"
        [first, *_] = virtual_host(plan_, "grpc")["routes"]
        assert "typed_per_filter_config" not in first


def test_the_header_and_its_absence_decide() -> None:
    plan_ = labelled(None)
    for value in ("canary", "stable"):
        assert rewritten(plan_, x_tf_model_version=value) == f"/v1/models/resnet/labels/{value}"
    assert rewritten(plan_, x_tf_model_version="4") == "/v1/models/resnet/versions/4"
    assert rewritten(plan_, x_tf_model_version="5") == "400"
    path = "/v1/models/resnet/labels/stable:predict"
    assert rewritten(plan_, path, x_tf_model_version="canary") == "as it is"


def test_the_headers_name_is_a_setting_and_there_may_be_none() -> None:
    plan_ = labelled(None, {"versions": {"header": "x-version"}})
    assert rewritten(plan_, x_version="canary") == "/v1/models/resnet/labels/canary"
    assert rewritten(plan_, x_tf_model_version="canary") == "as it is"
    plan_ = labelled(None, {"versions": {"header": None}})
    assert rewritten(plan_, x_tf_model_version="canary") == "as it is"


def test_a_canary_by_label_sends_all_others_to_the_stable_one() -> None:
    plan_ = labelled({"percent": 5.25, "label": "canary"})
    [canary, stable, *_] = virtual_host(plan_, "rest")["routes"]
    assert canary["match"]["runtime_fraction"]["default_value"] == {
        "numerator": 525,
        "denominator": "TEN_THOUSAND",
    }
    substitutions = [route["route"]["regex_rewrite"]["substitution"] for route in (canary, stable)]
    assert substitutions == ["/v1/models/resnet/labels/canary", "/v1/models/resnet/labels/stable"]
    assert "runtime_fraction" not in stable["match"]


def test_over_grpc_a_label_can_be_left_to_the_clients() -> None:
    canary = {"percent": 5, "label": "canary", "sticky": True}
    for settings, touched in ((None, True), ({"versions": {"grpc": False}}, False)):
        host = virtual_host(labelled(canary, settings), "grpc")
        assert ("matcher" in host) == touched
        assert ("typed_per_filter_config" in str(host)) == touched


@pytest.mark.parametrize("percent", [0.01, 5, 50, 100])
def test_more_percent_add_users_and_take_none_away(percent: float) -> None:
    host = virtual_host(labelled({"percent": percent, "label": "canary", "sticky": True}), "rest")
    [matcher] = host["matcher"]["matcher_list"]["matchers"]
    hashing = matcher["predicate"]["single_predicate"]["custom_match"]["typed_config"]
    # Chosen is who hashes to the threshold or above it.
    assert hashing["modulo"] - hashing["threshold"] == percent * 100
    assert "routes" not in host, "Envoy takes one of the two"


@pytest.mark.parametrize("version", [0, 1, 127, 128, 2**31, 2**63 - 1])
def test_the_version_before_a_message_is_what_protobuf_writes(version: int) -> None:
    pool = front_end().pools[0]
    for target, spec in (
        (Target(pool=pool, version=version), {"version": version}),
        (Target(pool=pool, label="l" * 63), {"version_label": "l" * 63}),
    ):
        wanted = message("tensorflow.serving.PredictRequest", {"model_spec": spec})
        read = message("tensorflow.serving.PredictRequest", {})
        read.ParseFromString(model_spec(target))
        assert read == wanted


def test_a_helping_pool_has_clusters_and_no_routes_of_its_own() -> None:
    newer = SmallPool(name="newer", instances=1, models=["resnet"])
    main = SmallPool(instances=2, models=["resnet"], more={"traffic": {"mirror": {"pool": "newer"}}})
    plan_ = front_end([main, newer])
    assert list(pool_clusters(plan_)) == ["rest-main", "grpc-main", "rest-newer", "grpc-newer"]
    for name in ("rest", "grpc"):
        [first, *others] = virtual_host(plan_, name)["routes"]
        [policy] = first["route"]["request_mirror_policies"]
        assert policy["cluster"] == f"{name}-newer"
        led = {route["route"]["cluster"] for route in [first, *others] if "route" in route}
        assert led == {f"{name}-main"}
