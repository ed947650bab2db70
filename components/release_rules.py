"""Rules about releases: what may change its version GPU by GPU, and what the two versions may be."""

from collections.abc import Iterator

from components.errors import Problem
from components.settings import Settings


def replaced_versions_are_listed(settings: Settings) -> Iterator[Problem]:
    """With `latest` or `all` a server loads what appears in its folder, beside what it has."""
    for p, pool in enumerate(settings.pools):
        if pool.new_versions == "reload":
            continue
        for m, model in enumerate(pool.models):
            if model.versions.specific is None:
                message = "must be specific: [<version>] beside new_versions: replace"
                yield Problem(f"pools[{p}].models[{m}].versions", message)


def releases_have_two_versions(settings: Settings) -> Iterator[Problem]:
    """Each instance has one of the two, so the model has one now, and gets another."""
    for p, pool in enumerate(settings.pools):
        release = pool.release
        if release is None:
            continue
        path = f"pools[{p}]"
        for m, model in enumerate(pool.models):
            if model.name != release.model:
                continue
            versions = model.versions.specific or ()
            if len(versions) != 1:
                message = "must be the one version that is served beside a release"
                yield Problem(f"{path}.models[{m}].versions.specific", message, list(versions))
            elif versions[0] == release.version:
                yield Problem(f"{path}.release.version", "is what the pool serves already", release.version)
        names = [model.name for model in pool.models]
        if release.model not in names:
            message = f"no model of {pool.name}; accepted: {', '.join(names)}"
            yield Problem(f"{path}.release.model", message, release.model)
        if release.moved > pool.instances_on():
            message = f"{pool.name} has {pool.instances_on()} instances"
            yield Problem(f"{path}.release.moved", message, release.moved)


def released_pools_stand_alone(settings: Settings) -> Iterator[Problem]:
    """Pools that help each other serve the same versions, or split requests by them."""
    helped_by = {name: pool.name for pool in settings.pools for _, name in pool.traffic.helpers}
    for p, pool in enumerate(settings.pools):
        if pool.release is None:
            continue
        if pool.traffic.helpers or pool.traffic.canary:
            said = [setting for setting, _ in pool.traffic.helpers] or ["canary"]
            message = f"not while requests are shared out by traffic.{said[0]}; take that out first"
        elif pool.name in helped_by:
            message = f"not while it helps pool {helped_by[pool.name]} (traffic); take that out first"
        else:
            continue
        yield Problem(f"pools[{p}].release", message)
