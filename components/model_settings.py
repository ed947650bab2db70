"""Settings of a served model: where it is, which versions are kept, how large it is."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from components.base import Model, repeated
from components.errors import Problem
from components.types import MOST_MIB, Label, ModelName, ModelPath, ModelVersion


class VersionPolicy(Model):
    """Which versions of a model a server keeps loaded: exactly one of the three."""

    latest: Annotated[int, Field(ge=1, le=100)] | None = None
    """The newest n."""
    all: Literal[True] | None = None
    """Every version in the folder."""
    specific: Annotated[tuple[ModelVersion, ...], Field(min_length=1)] | None = None
    """These versions."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._exactly_one_is_given()
        yield from repeated("specific", "", self.specific or ())

    def _exactly_one_is_given(self) -> Iterator[Problem]:
        """The server's policy is a oneof: two at once do not parse there."""
        if len(self.model_dump(exclude_none=True)) != 1:
            yield Problem("", "give exactly one: latest: <n>, all: true or specific: [<version>, …]")

    def most_loaded(self) -> int | None:
        """Versions that are loaded at once at most; None where only the folder knows.

        A new version is loaded, and warmed up, before the one that it replaces is let go.
        """
        if self.specific is not None:
            return len(self.specific)
        return None if self.latest is None else self.latest + 1


class Optimized(Model):
    """A faster form of a model that somebody made beforehand, served under the model's name."""

    kind: Literal["tensorrt", "xla", "fp16"]
    """What it needs of the image: TensorRT, XLA for the GPU, or nothing."""
    path: ModelPath
    """Folder on the node with the versions of the optimized form; the same numbers as the original's."""
    tensorrt: str | None = None
    """With kind tensorrt: the TensorRT version that converted it. Another one crashes at inference."""
    keep_original: bool = True
    """Serve the original too, as `<model>_original`: what clients fall back to."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._tensorrt_version_needs_tensorrt()

    def _tensorrt_version_needs_tensorrt(self) -> Iterator[Problem]:
        """Only a converted model has one."""
        if self.tensorrt is not None and self.kind != "tensorrt":
            yield Problem("tensorrt", f"only with kind: tensorrt, not {self.kind}", self.tensorrt)


class ServedModel(Model):
    """One model of a pool."""

    name: ModelName
    """As clients write it: `/v1/models/<name>:predict`."""
    path: ModelPath
    """Folder on the node that holds the version folders (`1/`, `2/`), mounted read-only."""
    versions: VersionPolicy = VersionPolicy(latest=1)
    """Which versions are kept; unset, the newest one."""
    labels: Mapping[Label, ModelVersion] = {}
    """Names for versions, as in `/v1/models/<model>/labels/<label>`."""
    optimized: Optimized | None = None
    """A TensorRT, XLA or FP16 form of it."""
    gpu_mib: Annotated[int, Field(ge=1, le=MOST_MIB)] | None = None
    """GPU memory of one version in MiB, as measured: lets the rule about two loaded versions be checked."""
    disk_mib: Annotated[int, Field(ge=1, le=MOST_MIB)] | None = None
    """Files of one version in MiB; about what it takes of the container's memory while it loads."""

    @property
    def served_names(self) -> tuple[str, ...]:
        """Names that clients can ask for: its own, and that of the original beside an optimized form."""
        beside = self.optimized is not None and self.optimized.keep_original
        return (self.name, f"{self.name}_original") if beside else (self.name,)

    def _rules(self) -> Iterator[Problem]:
        yield from self._labels_name_versions_that_are_kept()

    def _labels_name_versions_that_are_kept(self) -> Iterator[Problem]:
        """A label on a version that the policy drops answers NOT_FOUND at request time."""
        kept = self.versions
        for label, version in self.labels.items():
            if kept.specific is not None and version not in kept.specific:
                yield Problem(
                    f"labels.{label}", f"not among versions.specific {list(kept.specific)}", version
                )
        if kept.latest is not None and len(set(self.labels.values())) > kept.latest:
            yield Problem(
                "labels",
                f"name {len(set(self.labels.values()))} versions but versions.latest keeps {kept.latest}; "
                "keep more, or list them in versions.specific",
                dict(self.labels),
            )
