"""The part of the Plan that says which models a server serves, and where it finds them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from components.model_settings import ServedModel, VersionPolicy
from components.pool_settings import Pool

MODELS_FOLDER = "/models"
"""Where a server finds its models, read-only."""


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """A model that an instance serves: `source` on the node, `target` in the container."""

    name: str
    versions: VersionPolicy
    labels: tuple[tuple[str, int], ...]
    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class Models:
    """What a pool's servers serve, and the folders that they see for it: in the container, on the node."""

    plans: tuple[ModelPlan, ...]
    mounts: tuple[tuple[str, str], ...]


def models_of(pool: Pool, project_folder: str) -> Models:
    """Models and mounts of a pool; `project_folder` is what a relative path is relative to."""
    folder = PurePosixPath(project_folder)
    whole = folder / pool.models_folder if pool.models_folder else None
    plans = tuple(_model_plans(pool.models, folder, whole))
    if whole is not None:
        return Models(plans=plans, mounts=((MODELS_FOLDER, str(whole)),))
    return Models(plans=plans, mounts=tuple((plan.target, plan.source) for plan in plans))


def _model_plans(
    models: Sequence[ServedModel], project_folder: PurePosixPath, whole: PurePosixPath | None
) -> Iterator[ModelPlan]:
    for model in models:
        # The model, and beside an optimized form the original that clients fall back to.
        paths = (model.optimized.path, model.path) if model.optimized else (model.path,)
        for name, path in zip(model.served_names, paths, strict=False):
            source = project_folder / path  # an absolute path stands for itself
            yield ModelPlan(
                name=name,
                versions=model.versions,
                labels=tuple(sorted(model.labels.items())),
                source=str(source),
                target=f"{MODELS_FOLDER}/{name if whole is None else source.relative_to(whole)}",
            )
