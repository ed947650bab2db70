"""Envoy's REST routes: the path names the model, and the version where the client chooses it there."""

import re
from collections.abc import Iterator

from components.envoy_balancing import choices
from components.envoy_config import Config, request_timeout, rest_cluster
from components.envoy_retries import rest_retries_of
from components.envoy_route_parts import (
    absent,
    chosen_users,
    header,
    matching,
    mirroring,
    models_of,
    present,
    refusal,
    sticky_canaries,
    with_case,
)
from components.envoy_targets import (
    Case,
    Target,
    accepted,
    canary_of,
    elsewhere,
    named,
    places,
    unnamed,
)
from components.envoy_versions import rest_rewrite
from components.front_end_plan import FrontEndPlan, PoolPlan, RoutedModel

_PREDICTIONS = ("predict", "classify", "regress")
_PREDICTION = f"({'|'.join(_PREDICTIONS)})"
_VERSION = "(/versions/[0-9]+|/labels/[A-Za-z0-9_]+)"
_NO_MODEL = "no such model here, or not a way to ask it"
_NO_PATH = (
    "not found; POST /v1/models/<model>[/versions/<n>|/labels/<label>]:predict, :classify or :regress, "
    "GET /v1/models/<model>[/versions/<n>|/labels/<label>][/metadata]"
)


def rest_routes(front_end: FrontEndPlan) -> Config:
    """`routes` or `matcher` of the virtual host.

    What names its version in the path goes there; else the header decides; else the split, if there is one.
    """
    canaries = sticky_canaries(front_end)
    alone = len(front_end.leading) == 1
    chosen = [
        (pool, None if alone else _requests_of(pool), list(_routes(front_end, pool))) for pool in canaries
    ]
    return chosen_users(front_end, chosen, list(_routes(front_end, None)))


def _requests_of(pool: PoolPlan) -> Config:
    names = "|".join(re.escape(name) for name in pool.model_names)
    return matching(":path", f"/v1/models/({names})([/:].*)?")


def _routes(front_end: FrontEndPlan, canary_users_of: PoolPlan | None) -> Iterator[Config]:
    models = list(models_of(front_end, canary_users_of))
    of_canary_users = canary_users_of is not None
    # What nearly all requests are comes first, and is compared: an expression costs a microsecond or two of
    # the fifty that a request takes, for each model before its own too.
    for pool, model in models:
        exactly: Config = {"path": f"/v1/models/{model.name}:predict"}
        yield from _predictions(front_end, pool, model, "predict", exactly, of_canary_users=of_canary_users)
    for pool, model in models:
        others = _regex(_any_prediction(front_end, pool, model))
        yield from _predictions(front_end, pool, model, "prediction", others, of_canary_users=of_canary_users)
        for value, target in elsewhere(front_end, pool, model).items():
            if target.pool.only is not None:
                yield _status(front_end, target.pool, model, value)
        yield _status(front_end, pool, model)
    # After all that most requests are, so that these cost them nothing.
    for pool, model in models:
        yield from _versions_by_path(front_end, pool, model)
        yield from _versions_by_header(front_end, pool, model)
    yield refusal("unknown-model", {"safe_regex": {"regex": "/v1/models/[^/:]+.*"}}, 404, _NO_MODEL)
    yield refusal("not-found", {"prefix": "/"}, 404, _NO_PATH)


def _path(model: RoutedModel) -> str:
    return f"/v1/models/{re.escape(model.name)}"


def _regex(regex: str) -> Config:
    return {"safe_regex": {"regex": regex}}


def _any_prediction(front_end: FrontEndPlan, pool: PoolPlan, model: RoutedModel) -> str:
    """The paths of predictions that name no version, and of those that do where they go the same way."""
    # Beside a header a version in the path is one of the routes below.
    splits = canary_of(pool, model) is not None or elsewhere(front_end, pool, model)
    alike = not splits and not mirroring(front_end, pool, model, "rest")
    return f"{_path(model)}{_VERSION}?:{_PREDICTION}" if alike else f"{_path(model)}:{_PREDICTION}"


def _predictions(
    front_end: FrontEndPlan,
    pool: PoolPlan,
    model: RoutedModel,
    kind: str,
    match: Config,
    *,
    of_canary_users: bool,
) -> Iterator[Config]:
    version_header = front_end.spec.versions.header
    unsaid = [absent(version_header)] if version_header else []
    mirrored = mirroring(front_end, pool, model, "rest")
    for place in places(front_end, pool, model):
        name, headers = f"{kind}:{model.name}{place.name}", [*unsaid, *place.headers]
        for case in unnamed(front_end, pool, place, model, of_canary_users=of_canary_users):
            copies = mirrored if case.target.pool is pool else {}
            yield from _to(front_end, model, name, match, case, headers, copies)


def _versions_by_path(front_end: FrontEndPlan, pool: PoolPlan, model: RoutedModel) -> Iterator[Config]:
    """A version in the path, with whatever header; first those that only the canary's pool has."""
    for value, target in elsewhere(front_end, pool, model).items():
        kind = "labels" if target.label is not None else "versions"
        path = _regex(f"{_path(model)}/{kind}/{value}:{_PREDICTION}")
        there = Case(name=f"/{value}", target=Target(pool=target.pool))
        yield from _to(front_end, model, f"predict:{model.name}", path, there, [])
    path = _regex(f"{_path(model)}{_VERSION}:{_PREDICTION}")
    for place in places(front_end, pool, model):
        own = Case(name=place.name, target=Target(pool=place.pool), headers=place.headers)
        yield from _to(front_end, model, f"version:{model.name}", path, own, [])


def _versions_by_header(front_end: FrontEndPlan, pool: PoolPlan, model: RoutedModel) -> Iterator[Config]:
    version_header = front_end.spec.versions.header
    if version_header is None:
        return
    for place in places(front_end, pool, model):
        name, headers = f"predict:{model.name}{place.name}", list(place.headers)
        for case in named(front_end, pool, place, [model]):
            if case.target.number_in is None:
                path = _regex(f"{_path(model)}:{_PREDICTION}")
                yield from _to(front_end, model, name, path, case, headers)
                continue
            # The new path is written as a whole, so there is one route for each thing to ask.
            for prediction in _PREDICTIONS:
                path = _regex(f"{_path(model)}:{prediction}")
                routes = _to(front_end, model, name, path, case, headers, {}, prediction)
                yield from ({**route, "name": f"{route['name']}:{prediction}"} for route in routes)
    yield refusal(
        f"unknown-version:{model.name}",
        {
            **_regex(f"{_path(model)}:{_PREDICTION}"),
            "headers": [header(":method", "POST"), present(version_header)],
        },
        400,
        f"{version_header}: {model.name} has no such version or label; "
        f"accepted: {accepted(front_end, pool, [model])}",
    )


def _to(
    front_end: FrontEndPlan,
    model: RoutedModel,
    name: str,
    match: Config,
    case: Case,
    headers: list[Config],
    more: Config | None = None,
    prediction: str = "",
) -> Iterator[Config]:
    """The routes of a case: one for each cluster that it may go to."""
    target = case.target
    rewrite = rest_rewrite(model.name, target, prediction) if target.rewrites else {}
    for choice in choices(front_end, target.pool, rest_cluster(target.pool)):
        asked = [header(":method", "POST"), *headers, *choice.headers]
        yield {
            "name": f"{name}{case.name}{choice.suffix}",
            "match": with_case(case, asked, match),
            "route": {
                **choice.action,
                "timeout": request_timeout(front_end),
                **rewrite,
                **rest_retries_of(front_end, target.pool),
                **(more or {}),
            },
        }


def _status(front_end: FrontEndPlan, pool: PoolPlan, model: RoutedModel, version: str = "") -> Config:
    """A model's state; that of a version where only a part of the pool has it."""
    of_version = f"/versions/{version}" if version else f"{_VERSION}?"
    return {
        "name": f"status:{model.name}{'/' if version else ''}{version}",
        "match": {
            "safe_regex": {"regex": f"{_path(model)}{of_version}(/metadata)?"},
            "headers": [header(":method", "GET")],
        },
        "route": {
            "cluster": rest_cluster(pool),
            "timeout": request_timeout(front_end),
            **rest_retries_of(front_end, pool),
        },
    }
