"""Small parts that REST and gRPC routes are made of."""

from collections.abc import Iterator, Sequence

from components.envoy_config import Config, set_header
from components.envoy_targets import Case, canary_of, share
from components.front_end_plan import FrontEndPlan, PoolPlan, RoutedModel

INVALID_ARGUMENT = "3"
NOT_FOUND = "5"
PERMISSION_DENIED = "7"


def header(name: str, value: str) -> Config:
    """Matches a request whose header is exactly this."""
    return {"name": name, "string_match": {"exact": value}}


def absent(name: str) -> Config:
    """Matches a request without this header."""
    return {"name": name, "present_match": False}


def present(name: str) -> Config:
    """Matches a request with this header, whatever it holds."""
    return {"name": name, "present_match": True}


def refusal(name: str, match: Config, status: int, text: str) -> Config:
    """A route that answers."""
    return {
        "name": name,
        "match": match,
        "direct_response": {"status": status, "body": {"inline_string": text}},
    }


def grpc_refusal(name: str, match: Config, http_status: int, status: str, text: str) -> Config:
    """A route that answers a gRPC client."""
    # Envoy derives a gRPC status from the HTTP status unless the header is already there.
    return {
        **refusal(name, match, http_status, text),
        "response_headers_to_add": [set_header("grpc-status", status)],
    }


def mirroring(front_end: FrontEndPlan, pool: PoolPlan, model: RoutedModel | None, protocol: str) -> Config:
    """The part of a route that sends copies to the pool that mirrors this one."""
    mirror = pool.traffic.mirror
    if mirror is None or mirror.percent == 0:
        return {}
    copied = front_end.pool(mirror.pool)
    if model is not None and model.name not in copied.model_names:
        return {}
    policy = {"cluster": f"{protocol}-{copied.name}", "runtime_fraction": share(mirror.percent)}
    return {"request_mirror_policies": [policy]}


def sticky_canaries(front_end: FrontEndPlan) -> list[PoolPlan]:
    """Pools whose users are chosen for the canary once and for all."""
    pools = []
    for pool in front_end.leading:
        canary = canary_of(pool, None)
        if canary is not None and canary.sticky:
            pools.append(pool)
    return pools


def chosen_users(
    front_end: FrontEndPlan,
    pools: Sequence[tuple[PoolPlan, Config | None, list[Config]]],
    others: list[Config],
) -> Config:
    """`routes` of a virtual host, or a matcher where users are chosen for a canary before any route is.

    For each pool: what its requests look like (None: all are its own), and the routes of the chosen users.
    """
    if not pools:
        return {"routes": others}
    return {
        "matcher": {
            "matcher_list": {
                "matchers": [
                    {
                        "predicate": _all_of(_chosen(front_end, pool), own),
                        "on_match": _route_list(f"canary:{pool.name}", routes),
                    }
                    for pool, own, routes in pools
                ]
            },
            "on_no_match": _route_list("others", others),
        }
    }


def _all_of(chosen: Config, own: Config | None) -> Config:
    return chosen if own is None else {"and_matcher": {"predicate": [chosen, own]}}


def _chosen(front_end: FrontEndPlan, pool: PoolPlan) -> Config:
    canary = pool.traffic.canary
    assert canary is not None  # noqa: S101 - it is one of sticky_canaries
    # Chosen are those whose hash, by the modulo, is the threshold or more: raising the percentage adds users
    # and takes none away.
    hashing = {"threshold": 10_000 - round(canary.percent * 100), "modulo": 10_000}
    return {
        "single_predicate": {
            "input": _header_input(front_end.spec.user_header),
            "custom_match": {
                "name": "share",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.matching.input_matchers."
                    "consistent_hashing.v3.ConsistentHashing",
                    **hashing,
                },
            },
        }
    }


def matching(header_name: str, regex: str) -> Config:
    """A matcher's predicate: the header matches, as a whole."""
    return {
        "single_predicate": {
            "input": _header_input(header_name),
            "value_match": {"safe_regex": {"google_re2": {}, "regex": regex}},
        }
    }


def _header_input(name: str) -> Config:
    return {
        "name": name,
        "typed_config": {
            "@type": "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput",
            "header_name": name,
        },
    }


def _route_list(name: str, routes: list[Config]) -> Config:
    routed = {"@type": "type.googleapis.com/envoy.config.route.v3.RouteList", "routes": routes}
    return {"action": {"name": name, "typed_config": routed}}


def with_case(case: Case, headers: Sequence[Config], match: Config) -> Config:
    """A route's match: the path's, the case's, and the headers of both."""
    every = [*headers, *case.headers]
    return {**match, **case.match, **({"headers": every} if every else {})}


def models_of(front_end: FrontEndPlan, only: PoolPlan | None) -> Iterator[tuple[PoolPlan, RoutedModel]]:
    """Every model that clients ask for, with its pool; or those of one pool."""
    for pool in front_end.leading if only is None else (only,):
        for model in pool.models:
            yield pool, model
