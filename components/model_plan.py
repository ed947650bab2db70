"""The part of the Plan that says which models a server serves, and where it finds them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from components.model_settings import ServedModel, VersionPolicy


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """A model that an instance serves: `source` on the node, `target` in the container."""

    name: str
    versions: VersionPolicy
    labels: tuple[tuple[str, int], ...]
    source: str
    target: str


def model_plans(models: Sequence[ServedModel], project_folder: str) -> tuple[ModelPlan, ...]:
    """Every model of a pool; `project_folder` is what a relative path is relative to."""
    return tuple(_model_plans(models, PurePosixPath(project_folder)))


def _model_plans(models: Sequence[ServedModel], project_folder: PurePosixPath) -> Iterator[ModelPlan]:
    for model in models:
        # The model, and beside an optimized form the original that clients fall back to.
        paths = (model.optimized.path, model.path) if model.optimized else (model.path,)
        for name, path in zip(model.served_names, paths, strict=False):
            yield ModelPlan(
                name=name,
                versions=model.versions,
                labels=tuple(sorted(model.labels.items())),
                source=str(project_folder / path),  # an absolute path stands for itself
                target=f"/models/{name}",
            )
