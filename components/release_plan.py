"""What a release comes to: which instance serves which version, and where Envoy finds each of them.

No instance has both versions: they may not fit its GPU together. So one that is moved is another server, and
a request that names a version must find those that have it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from components.front_end_plan import Endpoint, PoolPlan, VersionOf, routed_models
from components.model_settings import ServedModel, VersionPolicy
from components.pool_settings import Pool


def as_served(pool: Pool, position: int) -> Pool:
    """The pool as its instance at this position serves it, counted in the order of its slots.

    One that was moved is what it is going to be after the release: its end changes no server.
    """
    release = pool.release
    if release is None or position >= release.moved:
        return pool
    models = tuple(
        _with_version(model, release.version) if model.name == release.model else model
        for model in pool.models
    )
    return pool.model_copy(update={"models": models, "new_versions": "replace"})


def _with_version(model: ServedModel, version: int) -> ServedModel:
    labels = dict.fromkeys(model.labels, version)
    return model.model_copy(update={"versions": VersionPolicy(specific=(version,)), "labels": labels})


def versions_label(pool: Pool) -> Mapping[str, str]:
    """The label of an instance that never has other versions than those that it was started for."""
    if pool.new_versions == "reload":
        return {}
    listed = {model.name: "+".join(map(str, model.versions.specific or ())) for model in pool.models}
    return {"versions": ",".join(f"{name}={versions}" for name, versions in sorted(listed.items()))}


def pool_plan(pool: Pool, instances: Sequence[tuple[Endpoint, Pool]]) -> PoolPlan:
    """The pool on a node: where Envoy reaches each instance, and the pool as that one serves it."""
    whole = PoolPlan(
        name=pool.name,
        models=routed_models(pool.models),
        endpoints=tuple(endpoint for endpoint, _ in instances),
        balancing=pool.balancing,
        traffic=pool.traffic,
    )
    released = next(
        (model for model in pool.models if pool.release and pool.release.model == model.name), None
    )
    if released is None:
        return whole
    have: dict[int, list[Endpoint]] = {}
    for endpoint, served in instances:
        [version] = (
            next(model for model in served.models if model.name == released.name).versions.specific or ()
        )
        have.setdefault(version, []).append(endpoint)
    models = tuple(
        replace(model, versions=VersionPolicy(specific=tuple(sorted(have))))
        if have and model.name in released.served_names
        else model
        for model in whole.models
    )
    parts = tuple(
        replace(
            whole,
            # No name of a pool holds an underscore.
            name=f"{pool.name}_v{version}",
            models=models,
            endpoints=tuple(endpoints),
            only=VersionOf(models=released.served_names, version=version),
        )
        for version, endpoints in sorted(have.items())
    )
    return replace(whole, models=models, parts=parts)
