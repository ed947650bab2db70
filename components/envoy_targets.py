"""Which pool, and which version of a model, a request is for: the same decisions for REST and gRPC."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from components.envoy_config import Config
from components.front_end_plan import FrontEndPlan, PoolPlan, RoutedModel
from components.routing_settings import Canary


@dataclass(frozen=True, kw_only=True)
class Target:
    """A pool, and the version there where one is put into the request: a label, a number, or a header's."""

    pool: PoolPlan
    label: str | None = None
    version: int | None = None
    number_in: str | None = None
    """The header that holds the version's number."""

    @property
    def rewrites(self) -> bool:
        """Whether the request names another version afterwards."""
        return not (self.label is None and self.version is None and self.number_in is None)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A way that a request can go: what it must look like beyond its path, and where it then goes."""

    name: str
    """For the route's name."""
    target: Target
    headers: tuple[Config, ...] = ()
    match: Config = field(default_factory=dict)
    """Further parts of the route's match."""


def canary_of(pool: PoolPlan, model: RoutedModel | None) -> Canary | None:
    """The split of a model's requests, where there is one. Without a model: of all that the pool serves."""
    canary = pool.traffic.canary
    if canary is None or canary.percent == 0:
        return None
    return canary if model is None or model.name in (canary.models or pool.model_names) else None


@dataclass(frozen=True, kw_only=True)
class Place:
    """The pool itself, or one that is dedicated to those of its requests that have these headers."""

    name: str
    """For the route's name."""
    pool: PoolPlan
    headers: tuple[Config, ...] = ()


def unnamed(
    front_end: FrontEndPlan, pool: PoolPlan, place: Place, model: RoutedModel | None, *, of_canary_users: bool
) -> Iterator[Case]:
    """Where requests go that name no version, the first match first.

    `of_canary_users`: those of users who were chosen for the canary.
    """
    canary, own = canary_of(pool, model), place.pool
    if canary is None or (canary.pool is not None and own is not pool):
        yield Case(name="", target=Target(pool=own))
        return
    newer = Target(pool=front_end.pool(canary.pool) if canary.pool else own, label=canary.label)
    if of_canary_users:
        yield Case(name="~canary", target=newer)
        return
    # Who is sticky and names a user was chosen, or not, before.
    anonymous = ({"name": front_end.spec.user_header, "present_match": False},) if canary.sticky else ()
    yield Case(
        name="~canary", target=newer, headers=anonymous, match={"runtime_fraction": share(canary.percent)}
    )
    yield Case(name="", target=Target(pool=own, label=canary.stable if canary.label else None))


def places(
    front_end: FrontEndPlan, pool: PoolPlan, model: RoutedModel | None, *, model_header: str | None = None
) -> Iterator[Place]:
    """The pools for a pool's requests, the first match first; over REST with a model, over gRPC maybe not.

    `model_header`: where gRPC requests name their model, which have no path of their own.
    """
    for d, dedicated in enumerate(pool.traffic.dedicated):
        headers: list[Config] = []
        if dedicated.header is not None:
            headers.append(_is(dedicated.header.name, dedicated.header.value))
        if dedicated.path is not None:
            if model_header is not None:
                continue
            headers.append({"name": ":path", "string_match": {"prefix": dedicated.path}})
        name, hot = f"@{d}:{dedicated.pool}", front_end.pool(dedicated.pool)
        if not dedicated.models or (model is not None and model.name in dedicated.models):
            yield Place(name=name, pool=hot, headers=tuple(headers))
        elif model is None and model_header is not None:
            for served in dedicated.models:
                own = (*headers, _is(model_header, served))
                yield Place(name=f"{name}:{served}", pool=hot, headers=own)
    yield Place(name="", pool=pool)


def _is(name: str, value: str) -> Config:
    return {"name": name, "string_match": {"exact": value}}


def share(percent: float) -> Config:
    """A share of all requests."""
    return {"default_value": {"numerator": round(percent * 100), "denominator": "TEN_THOUSAND"}}


def named(
    front_end: FrontEndPlan, pool: PoolPlan, place: Place, models: Sequence[RoutedModel]
) -> Iterator[Case]:
    """Where requests go that name a version in the header; `models`: those that it may be one of.

    A version that only the canary's pool lists is found there.
    """
    header = front_end.spec.versions.header
    if header is None:
        return
    known = _listed(models)
    there = _elsewhere(front_end, pool, models)
    for value, target in {**there, **_targets(place.pool, models, known)}.items():
        said: Config = {"name": header, "string_match": {"exact": value}}
        yield Case(name=f"={value}", target=target, headers=(said,))
    if not _lists_versions(models):
        number: Config = {"name": header, "string_match": {"safe_regex": {"regex": "[0-9]{1,19}"}}}
        yield Case(name="=number", target=Target(pool=place.pool, number_in=header), headers=(number,))


def accepted(front_end: FrontEndPlan, pool: PoolPlan, models: Sequence[RoutedModel]) -> str:
    """What the header may hold, in words."""
    values = [*_listed(models), *_elsewhere(front_end, pool, models)]
    return ", ".join([*dict.fromkeys(values), *([] if _lists_versions(models) else ["a version's number"])])


def elsewhere(front_end: FrontEndPlan, pool: PoolPlan, model: RoutedModel) -> dict[str, Target]:
    """Versions and labels that only the canary's pool has, and versions that only a part of the pool has."""
    parts = _targets(pool, [model], _listed([model])) if pool.parts else {}
    return {value: target for value, target in parts.items() if target.pool is not pool} | _elsewhere(
        front_end, pool, [model]
    )


def _elsewhere(front_end: FrontEndPlan, pool: PoolPlan, models: Sequence[RoutedModel]) -> dict[str, Target]:
    canary = pool.traffic.canary
    if canary is None or canary.pool is None:
        return {}
    other = front_end.pool(canary.pool)
    names = {model.name for model in models}
    here = _listed(models)
    there = _listed([model for model in other.models if model.name in names])
    lacking = {value: number for value, number in there.items() if value not in here}
    return _targets(other, models, lacking)


def _targets(
    pool: PoolPlan, models: Sequence[RoutedModel], values: dict[str, int | None]
) -> dict[str, Target]:
    names = [model.name for model in models]
    return {
        value: Target(pool=pool, label=value)
        if number is None
        else Target(pool=pool.part(names, number) or pool, version=number)
        for value, number in values.items()
    }


def _listed(models: Sequence[RoutedModel]) -> dict[str, int | None]:
    """Labels (None) and numbers of the versions that are listed, as a client writes them."""
    labels: dict[str, int | None] = {label: None for model in models for label, _ in model.labels}
    versions = {
        str(version): version
        for model in models
        for version in model.versions.specific or ()
        if str(version) not in labels
    }
    return {**labels, **versions}


def _lists_versions(models: Sequence[RoutedModel]) -> bool:
    return all(model.versions.specific is not None for model in models)
