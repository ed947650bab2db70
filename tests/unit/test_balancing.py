"""Balancing: what a stack file may say of it, and the clusters and routes that it comes to."""

import pytest

from tests.envoy.pools import STICKY, TWO_POOLS, SmallPool, front_end
from tests.envoy.reading import clusters, pool_clusters, routes
from tests.stacks import changed, one_node, refusal

PLACE = "pools[0].balancing"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"policy": "random"}, f"{PLACE}.policy: 'random': input should be 'least_request' or 'round_robin'"),
        ({"sticky": "x-user-id"}, f"{PLACE}.sticky: 'x-user-id': must be true or false"),
        ({"bounded_load_percent": 150}, f"{PLACE}.bounded_load_percent: 150: only with sticky: true"),
        (
            # Envoy takes less than 100 without a word.
            {"sticky": True, "bounded_load_percent": 90},
            f"{PLACE}.bounded_load_percent: 90: input should be greater than or equal to 110",
        ),
        (
            {"choice_count": 4},
            f"{PLACE}.choice_count: 4: unknown key (accepted: policy, sticky, bounded_load_percent)",
        ),
    ],
)
def test_balancing_that_cannot_be_is_refused(value: object, said: str) -> None:
    assert refusal(changed(one_node(), PLACE, value)) == [said]


@pytest.mark.parametrize("name", ["X-User-Id", "x_user_id", ":path", "x-user-id ", "-x", ""])
def test_a_header_that_no_request_can_have_is_refused(name: str) -> None:
    (said,) = refusal(changed(one_node(), "front_end", {"user_header": name}))
    assert said == (
        f"front_end.user_header: {name!r}: accepted: a header's name in lower-case letters, digits and '-'"
    )


@pytest.mark.parametrize("name", ["x-envoy-retry-on", "host", "grpc-timeout", "x-tf-model"])
def test_a_header_that_means_something_else_is_refused(name: str) -> None:
    (said,) = refusal(changed(one_node(), "front_end", {"user_header": name}))
    assert said == (
        f"front_end.user_header: {name!r}: "
        "this header has a meaning of its own; name another one, such as x-user-id"
    )


def policies(more: dict[str, object]) -> dict[str, object]:
    plan = front_end([SmallPool(instances=2, models=["resnet"], more={"balancing": more})])
    found: dict[str, object] = {}
    for name, cluster in pool_clusters(plan).items():
        [entry] = cluster["load_balancing_policy"]["policies"]
        config = dict(entry["typed_extension_config"]["typed_config"])
        config["@type"] = config["@type"].rpartition(".")[2]
        found[name] = config
        # Envoy takes both and reads one.
        assert "lb_policy" not in cluster
    return found


def test_a_pool_has_one_policy_on_both_protocols() -> None:
    least = {"@type": "LeastRequest", "choice_count": 2}
    assert policies({}) == {"rest-main": least, "grpc-main": least}
    turn = {"@type": "RoundRobin"}
    assert policies({"policy": "round_robin"}) == {"rest-main": turn, "grpc-main": turn}


@pytest.mark.parametrize(("said", "factor"), [({}, 150), ({"bounded_load_percent": 300}, 300)])
def test_a_sticky_pool_has_a_second_cluster_hashed_by_the_instances_names(
    said: dict[str, object], factor: int
) -> None:
    found = policies({"policy": "round_robin", "sticky": True, **said})
    assert list(found) == ["rest-main", "rest-main_sticky", "grpc-main", "grpc-main_sticky"]
    for protocol in ("rest", "grpc"):
        assert found[f"{protocol}-main"] == {"@type": "RoundRobin"}
        assert found[f"{protocol}-main_sticky"] == {
            "@type": "Maglev",
            "consistent_hashing_lb_config": {
                "use_hostname_for_hashing": True,
                "hash_balance_factor": factor,
            },
        }


def test_both_clusters_of_a_sticky_pool_have_the_same_instances() -> None:
    found = clusters(front_end(STICKY))
    for name in ("rest-main", "grpc-main"):
        endpoints = found[name]["load_assignment"]["endpoints"]
        assert endpoints == found[f"{name}_sticky"]["load_assignment"]["endpoints"]
        names = [entry["endpoint"]["hostname"] for entry in endpoints[0]["lb_endpoints"]]
        assert names == [f"gpu-01-gpu{gpu}" for gpu in range(4)]


def test_only_a_request_of_a_user_goes_to_the_sticky_cluster() -> None:
    plan = front_end(STICKY, settings={"user_header": "x-account"})
    for name in ("rest", "grpc"):
        led = [
            (
                route["route"]["cluster"],
                [header for header in route["match"].get("headers", []) if header["name"] == "x-account"],
                route["route"].get("hash_policy"),
            )
            for route in routes(plan, name)
            if "route" in route
        ]
        assert led[:2] == [
            (
                f"{name}-main_sticky",
                [{"name": "x-account", "present_match": True}],
                [{"header": {"header_name": "x-account"}}],
            ),
            (f"{name}-main", [], None),
        ]


def test_a_pool_that_is_not_sticky_has_no_second_cluster() -> None:
    sticky = SmallPool(name="text", instances=2, models=["bert"], more=STICKY[0].more)
    assert list(pool_clusters(front_end([TWO_POOLS[0], sticky]))) == [
        *("rest-vision", "grpc-vision"),
        *("rest-text", "rest-text_sticky", "grpc-text", "grpc-text_sticky"),
    ]
