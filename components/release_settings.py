"""Settings of a release: the GPUs of a pool get another version of a model one after the other."""

from typing import Annotated

from pydantic import Field

from components.base import Model
from components.types import ModelName, ModelVersion


class Release(Model):
    """A release under way, as `make release` writes it down: what is done is all that it knows."""

    model: ModelName
    """The model that gets another version."""
    version: ModelVersion
    """The version that it gets; the one before is in its `versions`."""
    moved: Annotated[int, Field(ge=0, le=10_000)]
    """Instances that have it, the first ones in the order of `slots`; 0: none yet, or none any more."""
