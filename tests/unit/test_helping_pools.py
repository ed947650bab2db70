"""Standbys and dedicated pools: what a stack file may say, and the clusters that it comes to."""

from typing import Any

import pytest

from tests import stacks
from tests.envoy.pools import SmallPool, front_end
from tests.envoy.reading import clusters, pool_clusters
from tests.stacks import Config, changed, one_node, refusal

TRAFFIC = "pools[0].traffic"


def with_second(traffic: dict[str, Any], **more: Any) -> Config:
    """`main` on three GPUs, and `second` on the fourth with the same model."""
    config = changed(one_node(), "pools[0].slots[0].gpus", [0, 1, 2])
    second = {
        "name": "second",
        "models": [{"name": "resnet50", "path": "/srv/models/resnet50", **more}],
        "slots": [{"node": "gpu-01", "gpus": [3]}],
        "unbatched": True,
        "memory": {"container_mib": 4096},
    }
    return changed(changed(config, "pools[1]", second), TRAFFIC, traffic)


DEDICATED = f"{TRAFFIC}.dedicated[0]"
HEADER = {"name": "x-class", "value": "hot"}


@pytest.mark.parametrize(
    ("traffic", "said"),
    [
        (
            {"standby": {"pool": "second", "from_healthy_percent": 9}},
            f"{TRAFFIC}.standby.from_healthy_percent: 9: input should be greater than or equal to 10",
        ),
        ({"standby": {"pool": "third"}}, f"{TRAFFIC}.standby.pool: 'third': no such pool; accepted: second"),
        (
            {"dedicated": [{"pool": "second"}]},
            f"{DEDICATED}: give at least one of header, path and models",
        ),
        (
            {"dedicated": [{"pool": "second", "path": "/v1/models/bert:predict"}]},
            f"{DEDICATED}.path: '/v1/models/bert:predict': names no model of main; accepted: resnet50",
        ),
        (
            {"dedicated": [{"pool": "second", "path": "/v2/models"}]},
            f"{DEDICATED}.path: '/v2/models': accepted: the beginning of a path, from /v1/models/<model> on",
        ),
        (
            {"dedicated": [{"pool": "second", "models": ["bert"]}]},
            f"{DEDICATED}.models[0]: 'bert': no model of main; accepted: resnet50",
        ),
        (
            {"dedicated": [{"pool": "second", "header": {"name": "x-class", "value": " hot"}}]},
            (
                f"{DEDICATED}.header.value: ' hot': "
                "accepted: printable ASCII, at most 256, without blanks around it"
            ),
        ),
        (
            {"dedicated": [{"pool": "second", "header": {"name": "x-class"}}]},
            f"{DEDICATED}.header.value: is required",
        ),
    ],
)
def test_a_standby_or_dedicated_pool_that_cannot_be_is_refused(traffic: dict[str, Any], said: str) -> None:
    found = refusal(with_second(traffic))
    assert [line for line in found if line.startswith(TRAFFIC)] == [said]


@pytest.mark.parametrize(
    ("place", "traffic"),
    [
        (f"{TRAFFIC}.standby.pool", {"standby": {"pool": "second"}}),
        (f"{DEDICATED}.pool", {"dedicated": [{"pool": "second", "header": HEADER}]}),
    ],
)
def test_what_takes_over_serves_the_same_versions_and_labels(place: str, traffic: dict[str, Any]) -> None:
    assert not stacks.problems(with_second(traffic))
    for more in ({"versions": {"latest": 2}}, {"labels": {"stable": 1}}):
        assert refusal(with_second(traffic, **more)) == [
            f"{place}: 'second': serves resnet50 with other versions or labels than main"
        ]


def test_a_standby_serves_every_model_and_a_dedicated_pool_those_that_it_is_for() -> None:
    config = with_second({"standby": {"pool": "second"}})
    config["pools"][0]["models"].append({"name": "bert", "path": "/srv/models/bert"})
    assert refusal(config) == [f"{TRAFFIC}.standby.pool: 'second': does not serve bert, a model of main"]
    for models, fine in (([], False), (["resnet50"], True), (["bert"], False)):
        dedicated = [{"pool": "second", "header": HEADER, "models": models}]
        assert (stacks.problems(changed(config, TRAFFIC, {"dedicated": dedicated})) == ()) == fine


def test_a_standby_may_stand_by_for_two_pools_and_a_dedicated_pool_may_not() -> None:
    config = with_second({"standby": {"pool": "third"}})
    bert = {"name": "bert", "path": "/srv/models/bert"}
    config["pools"][0]["slots"][0]["gpus"] = [0, 1]
    config["pools"][1] |= {"models": [bert], "traffic": {"standby": {"pool": "third"}}}
    third = {**config["pools"][1], "name": "third", "slots": [{"node": "gpu-01", "gpus": [2]}]}
    third |= {"models": [config["pools"][0]["models"][0], bert], "traffic": {}}
    config["pools"].append(third)
    assert not stacks.problems(config)
    config["pools"][1]["single"] = True
    for p in (0, 1):
        hot = {"pool": "third", "models": [config["pools"][p]["models"][0]["name"]]}
        config["pools"][p]["traffic"] = {"dedicated": [hot]}
    assert refusal(config) == [
        "pools[1].traffic.dedicated[0].pool: 'third': already has requests of pool main; take another one"
    ]


# Clusters

SPARE = SmallPool(name="spare", instances=1, models=["resnet"])


def priorities(cluster: Any) -> list[tuple[int, list[str]]]:
    return [
        (group["priority"], [entry["endpoint"]["hostname"] for entry in group["lb_endpoints"]])
        for group in cluster["load_assignment"]["endpoints"]
    ]


@pytest.mark.parametrize(("percent", "factor"), [(100, 100), (71, 141), (50, 200), (10, 1000)])
def test_a_standby_is_the_second_priority_and_has_no_cluster_of_its_own(percent: int, factor: int) -> None:
    standby = {"pool": "spare", "from_healthy_percent": percent}
    main = SmallPool(
        instances=2,
        models=["resnet"],
        more={"traffic": {"standby": standby}, "balancing": {"sticky": True}},
    )
    plan = front_end([main, SPARE])
    found = pool_clusters(plan)
    assert list(found) == ["rest-main", "rest-main_sticky", "grpc-main", "grpc-main_sticky"]
    for name, cluster in found.items():
        # A gap in the priorities is taken without a word.
        assert priorities(cluster) == [(0, ["gpu-01-gpu0", "gpu-01-gpu1"]), (1, ["gpu-01-gpu2"])]
        assert cluster["common_lb_config"]["healthy_panic_threshold"] == {"value": 1}
        policy = cluster["load_assignment"].get("policy")
        # With any other factor than Envoy's own, users moved whose instance was there.
        assert policy == (None if name.endswith("_sticky") else {"overprovisioning_factor": factor})
    assert "metrics-gpu-01-gpu2" in clusters(plan)


@pytest.mark.parametrize(
    "traffic",
    [
        {"dedicated": [{"pool": "spare", "header": HEADER}]},
        {"canary": {"percent": 5, "pool": "spare"}},
    ],
)
def test_the_requests_of_a_dedicated_or_canary_pool_fall_back_to_the_pool_itself(
    traffic: dict[str, Any],
) -> None:
    plan = front_end([SmallPool(instances=2, models=["resnet"], more={"traffic": traffic}), SPARE])
    found = pool_clusters(plan)
    for protocol in ("rest", "grpc"):
        assert priorities(found[f"{protocol}-main"]) == [(0, ["gpu-01-gpu0", "gpu-01-gpu1"])]
        assert "policy" not in found[f"{protocol}-main"]["load_assignment"]
        assert priorities(found[f"{protocol}-spare"]) == [
            (0, ["gpu-01-gpu2"]),
            (1, ["gpu-01-gpu0", "gpu-01-gpu1"]),
        ]


def test_copies_fall_back_to_nobody() -> None:
    traffic = {"mirror": {"pool": "spare"}}
    plan = front_end([SmallPool(instances=2, models=["resnet"], more={"traffic": traffic}), SPARE])
    assert priorities(pool_clusters(plan)["rest-spare"]) == [(0, ["gpu-01-gpu2"])]
