"""Envoy's gRPC routes: the model and its version are inside the message, which Envoy does not read."""

import re
from collections.abc import Iterator, Sequence

from components.envoy_balancing import choices
from components.envoy_config import Config, grpc_cluster, request_timeout
from components.envoy_retries import grpc_retries_of
from components.envoy_route_parts import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    PERMISSION_DENIED,
    absent,
    chosen_users,
    grpc_refusal,
    header,
    matching,
    mirroring,
    present,
    sticky_canaries,
    with_case,
)
from components.envoy_targets import Case, Target, accepted, canary_of, named, places, unnamed
from components.envoy_versions import grpc_rewrite
from components.front_end_plan import FrontEndPlan, PoolPlan, RoutedModel

MODEL_HEADER = "x-tf-model"
"""Names the model of a gRPC request where a node has several pools."""

_SERVICE = r"/tensorflow\.serving\."
# Their messages hold a ModelSpec in field 1; that of MultiInference does not.
_VERSIONED = rf"{_SERVICE}PredictionService/(Predict|Classify|Regress|GetModelMetadata)"
# Not ReloadConfig (it replaces the models of a server) and no session service.
_METHODS = (
    rf"{_SERVICE}(PredictionService/(Predict|Classify|Regress|MultiInference|GetModelMetadata)"
    r"|ModelService/GetModelStatus)"
)


def grpc_routes(front_end: FrontEndPlan) -> Config:
    """`routes` or `matcher` of the virtual host.

    With one pool on the node every request goes there. With several, the request header `x-tf-model` names
    the model: without it a client gets INVALID_ARGUMENT, with a model that no pool serves NOT_FOUND. Other
    methods get PERMISSION_DENIED.
    """
    chosen = [
        (pool, _requests_of(front_end, pool), list(_routes(front_end, pool)))
        for pool in sticky_canaries(front_end)
        if _splits(front_end, pool)
    ]
    return chosen_users(front_end, chosen, list(_routes(front_end, None)))


def _splits(front_end: FrontEndPlan, pool: PoolPlan) -> bool:
    """Whether a canary's share holds over gRPC: for a label the message must be changed, which may be off."""
    canary = canary_of(pool, None)
    return canary is not None and (canary.pool is not None or front_end.spec.versions.grpc)


def _by_model(front_end: FrontEndPlan) -> bool:
    return len(front_end.leading) > 1


def _requests_of(front_end: FrontEndPlan, pool: PoolPlan) -> Config | None:
    if not _by_model(front_end):
        return None
    return matching(MODEL_HEADER, "|".join(re.escape(name) for name in pool.model_names))


def _routes(front_end: FrontEndPlan, canary_users_of: PoolPlan | None) -> Iterator[Config]:
    of_canary_users = canary_users_of is not None
    pools = list(front_end.leading) if canary_users_of is None else [canary_users_of]
    groups: list[tuple[PoolPlan, RoutedModel | None, str]] = [(pool, None, "grpc") for pool in pools]
    if _by_model(front_end):
        groups = [(pool, model, f"grpc:{model.name}") for pool in pools for model in pool.models]
    for pool, model, name in groups:
        yield from _unnamed(front_end, pool, model, name, of_canary_users=of_canary_users)
    for pool, model, name in groups:
        yield from _named(front_end, pool, model, name)
    if _by_model(front_end):
        yield from _refusals_of_models()
    yield grpc_refusal("denied", {"prefix": "/"}, 403, PERMISSION_DENIED, "not served here")


def _headers_of(model: RoutedModel | None) -> list[Config]:
    return [] if model is None else [header(MODEL_HEADER, model.name)]


def _unnamed(
    front_end: FrontEndPlan, pool: PoolPlan, model: RoutedModel | None, name: str, *, of_canary_users: bool
) -> Iterator[Config]:
    versions = front_end.spec.versions
    headers = _headers_of(model)
    unsaid = [absent(versions.header)] if versions.header and versions.grpc else []
    mirrored = mirroring(front_end, pool, model, "grpc")
    split = canary_of(pool, model) is not None and _splits(front_end, pool)
    for place in places(front_end, pool, model, model_header=MODEL_HEADER):
        own = Case(name=place.name, target=Target(pool=place.pool), headers=place.headers)
        if not split:
            copies = mirrored if place.pool is pool else {}
            yield from _to(front_end, name, _METHODS, own, [*headers, *unsaid], copies)
            continue
        said = [*headers, *unsaid, *place.headers]
        for case in unnamed(front_end, pool, place, model, of_canary_users=of_canary_users):
            copies = mirrored if case.target.pool is pool else {}
            yield from _to(front_end, f"{name}{place.name}", _VERSIONED, case, said, copies)
        # The other methods: they name no version that a split could change.
        yield from _to(front_end, f"{name}~whole", _METHODS, own, [*headers, *unsaid], {})


def _named(front_end: FrontEndPlan, pool: PoolPlan, model: RoutedModel | None, name: str) -> Iterator[Config]:
    versions = front_end.spec.versions
    if versions.header is None or not versions.grpc:
        return
    models = pool.models if model is None else (model,)
    headers = _headers_of(model)
    for place in places(front_end, pool, model, model_header=MODEL_HEADER):
        said = [*headers, *place.headers]
        for case in named(front_end, pool, place, models):
            yield from _to(front_end, f"{name}{place.name}", _VERSIONED, case, said, {}, required=True)
    which = pool.name if model is None else model.name
    yield grpc_refusal(
        f"{name}:unknown-version",
        {
            "safe_regex": {"regex": _VERSIONED},
            "grpc": {},
            "headers": [*headers, present(versions.header)],
        },
        400,
        INVALID_ARGUMENT,
        f"{versions.header}: {which} has no such version or label; "
        f"accepted: {accepted(front_end, pool, models)}",
    )
    # The other methods have no version to change.
    yield from _to(
        front_end, f"{name}~unversioned", _METHODS, Case(name="", target=Target(pool=pool)), headers, {}
    )


def _refusals_of_models() -> Iterator[Config]:
    match: Config = {"safe_regex": {"regex": _METHODS}, "grpc": {}}
    named_one = {**match, "headers": [present(MODEL_HEADER)]}
    yield grpc_refusal("unknown-model", named_one, 404, NOT_FOUND, f"{MODEL_HEADER}: no such model here")
    yield grpc_refusal(
        "no-model",
        match,
        400,
        INVALID_ARGUMENT,
        f"several pools are served here: name the model in the request header {MODEL_HEADER}",
    )


def _to(
    front_end: FrontEndPlan,
    name: str,
    methods: str,
    case: Case,
    headers: Sequence[Config],
    more: Config,
    *,
    required: bool = False,
) -> Iterator[Config]:
    """The routes of a case: one for each cluster that it may go to."""
    target, timeout = case.target, request_timeout(front_end)
    rewrite = grpc_rewrite(target, required=required) if target.rewrites else {}
    for choice in choices(front_end, target.pool, grpc_cluster(target.pool)):
        match: Config = {"safe_regex": {"regex": methods}, "grpc": {}}
        yield {
            "name": f"{name}{case.name}{choice.suffix}",
            "match": with_case(case, [*headers, *choice.headers], match),
            "route": {
                **choice.action,
                "timeout": timeout,
                "max_stream_duration": {"grpc_timeout_header_max": timeout},  # a client's may be shorter
                **grpc_retries_of(front_end, target.pool),
                **more,
            },
            **rewrite,
        }
