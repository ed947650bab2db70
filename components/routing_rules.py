"""Rules about which pools help which: standbys, dedicated pools, canaries, mirrors."""

import re
from collections.abc import Iterator

from components.errors import Problem
from components.model_settings import ServedModel
from components.pool_settings import Pool
from components.settings import Settings


def _helped(settings: Settings) -> Iterator[tuple[str, Pool, str, Pool | None, str]]:
    """For each pool that helps another: where that is said, the one it helps, how, itself, its name."""
    pools = {pool.name: pool for pool in settings.pools}
    for p, pool in enumerate(settings.pools):
        for setting, name in pool.traffic.helpers:
            yield f"pools[{p}].traffic.{setting}", pool, setting, pools.get(name), name


def helping_pools_exist(settings: Settings) -> Iterator[Problem]:
    """A pool that gets requests of another is one of this stack."""
    for path, pool, _, other, name in _helped(settings):
        if other is pool:
            yield Problem(path, "is this pool itself; name another one", name)
        elif other is None:
            others = ", ".join(known.name for known in settings.pools if known is not pool)
            yield Problem(path, f"no such pool; accepted: {others or 'none, this is the only pool'}", name)


def helping_pools_only_help(settings: Settings) -> Iterator[Problem]:
    """What helps another pool has no requests of its own that a further pool could get."""
    for path, pool, _, other, name in _helped(settings):
        if other is not None and other is not pool and other.traffic.helpers:
            named = ", ".join(f"traffic.{setting}" for setting, _ in other.traffic.helpers)
            yield Problem(path, f"only helps {pool.name}, so it cannot name pools itself ({named})", name)


def helping_pools_are_on_the_same_nodes(settings: Settings) -> Iterator[Problem]:
    """A node's Envoy reaches the instances of that node alone."""
    for path, pool, _, other, name in _helped(settings):
        if other is None or other is pool:
            continue
        here, there = _nodes(pool), _nodes(other)
        for node in here:
            if node not in there:
                yield Problem(path, f"has no slot on {node}, where {pool.name} has one", name)
        for node in there:
            if node not in here:
                yield Problem(path, f"has a slot on {node}, where {pool.name} has none", name)


def _nodes(pool: Pool) -> list[str]:
    return list(dict.fromkeys(group.node for group in pool.slots))


def helping_pools_serve_nothing_else(settings: Settings) -> Iterator[Problem]:
    """A model that only a helping pool serves would never be asked for."""
    for path, pool, _, other, name in _helped(settings):
        if other is None or other is pool:
            continue
        helped = {
            served
            for _, leading, _, helper, _ in _helped(settings)
            if helper is other
            for served in _served(leading)
        }
        for served in _served(other):
            if served not in helped:
                yield Problem(path, f"serves {served}, which {pool.name} does not", name)


def _served(pool: Pool) -> dict[str, ServedModel]:
    return {name: model for model in pool.models for name in model.served_names}


def canaries_find_their_labels(settings: Settings) -> Iterator[Problem]:
    """A request for a label or a model that is not there is answered with an error."""
    for p, pool in enumerate(settings.pools):
        canary = pool.traffic.canary
        if canary is None:
            continue
        path, served = f"pools[{p}].traffic.canary", _served(pool)
        for m, model in enumerate(canary.models):
            if model not in served:
                accepted = ", ".join(served)
                yield Problem(f"{path}.models[{m}]", f"no model of {pool.name}; accepted: {accepted}", model)
        split = {name: model for name, model in served.items() if name in (canary.models or served)}
        if canary.label is not None and canary.percent > 0:
            for setting, label in (("label", canary.label), ("stable", canary.stable)):
                lacking = [name for name, model in split.items() if label not in model.labels]
                if lacking:
                    message = f"{', '.join(lacking)} has no such label; add it to its labels"
                    yield Problem(f"{path}.{setting}", message, label)
        other = next((other for other in settings.pools if other.name == canary.pool), None)
        if other is not None and other is not pool:
            for name in split:
                if name not in _served(other):
                    message = f"does not serve {name}; name the models that it does in models"
                    yield Problem(f"{path}.pool", message, other.name)
        yield from _mirrors_have(pool, f"pools[{p}].traffic.mirror.pool", settings)
        if 0 < len(split) < len(served) and settings.front_end.versions.grpc and canary.percent > 0:
            message = (
                "leaves models of the pool out, and gRPC requests do not show theirs; give these models a "
                "pool of their own, or set front_end.versions.grpc: false"
            )
            yield Problem(f"{path}.models", message, list(canary.models))


def _mirrors_have(pool: Pool, path: str, settings: Settings) -> Iterator[Problem]:
    """Copies ask for the label that the split put in."""
    canary, mirror = pool.traffic.canary, pool.traffic.mirror
    if canary is None or canary.label is None or canary.percent == 0 or mirror is None:
        return
    for other in settings.pools:
        for name, model in _served(other).items() if other.name == mirror.pool else ():
            lacking = [label for label in (canary.label, canary.stable) if label not in model.labels]
            if lacking:
                message = f"copies ask for labels that {name} has not there: {', '.join(lacking)}"
                yield Problem(path, message, mirror.pool)


def dedicated_pools_find_their_models(settings: Settings) -> Iterator[Problem]:
    """What tells a hot request apart is a model of the pool."""
    for p, pool in enumerate(settings.pools):
        served = _served(pool)
        for d, dedicated in enumerate(pool.traffic.dedicated):
            path = f"pools[{p}].traffic.dedicated[{d}]"
            for m, model in enumerate(dedicated.models):
                if model not in served:
                    accepted = ", ".join(served)
                    yield Problem(
                        f"{path}.models[{m}]", f"no model of {pool.name}; accepted: {accepted}", model
                    )
            named = re.match(r"/v1/models/([^/:]+)", dedicated.path or "")
            if named and named[1] not in served:
                accepted = ", ".join(served)
                yield Problem(
                    f"{path}.path", f"names no model of {pool.name}; accepted: {accepted}", dedicated.path
                )


def pools_that_take_over_serve_the_same(settings: Settings) -> Iterator[Problem]:
    """A request finds the same models, versions and labels on either side, whoever answers it."""
    pools = {pool.name: pool for pool in settings.pools}
    for path, pool, setting, other, name in _helped(settings):
        if other is None or other is pool or setting.startswith(("canary", "mirror")):
            continue
        wanted = _served(pool)
        if setting.startswith("dedicated"):
            dedicated = pool.traffic.dedicated[int(re.sub(r"\D", "", setting))]
            wanted = {model: wanted[model] for model in dedicated.models or wanted if model in wanted}
        there = _served(pools[name])
        for model, own in wanted.items():
            if model not in there:
                yield Problem(path, f"does not serve {model}, a model of {pool.name}", name)
            elif (there[model].versions, dict(there[model].labels)) != (own.versions, dict(own.labels)):
                yield Problem(path, f"serves {model} with other versions or labels than {pool.name}", name)


def a_pool_falls_back_to_one(settings: Settings) -> Iterator[Problem]:
    """The hot or canary requests of two pools could only fall back to one of them."""
    first: dict[str, str] = {}
    for path, pool, setting, _, name in _helped(settings):
        if setting.startswith(("canary", "dedicated")) and first.setdefault(name, pool.name) != pool.name:
            yield Problem(path, f"already has requests of pool {first[name]}; take another one", name)
