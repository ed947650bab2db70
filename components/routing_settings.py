"""Settings of a pool that only Envoy reads: which requests it gets, and how its instances share them."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from components.base import Model, repeated
from components.errors import Problem
from components.types import HeaderName, Label, ModelName, Slug

BOUNDED_LOAD_PERCENT = 150
"""With 24 requests in flight it sent 2.6 % of them away from their user's instance; 110 sent 10.1 %."""


class Balancing(Model):
    """How requests are shared out over the instances of a pool."""

    policy: Literal["least_request", "round_robin"] = "least_request"
    """`least_request`: of two instances, the one with fewer requests in flight. `round_robin`: in turn."""
    sticky: bool = False
    """Requests with the front end's `user_header` stay with their user's instance; others go by policy."""
    bounded_load_percent: Annotated[int, Field(ge=110, le=1000)] | None = None
    """With sticky: the load, in percent of the mean, from which an instance passes users on. Unset: 150."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._bounded_load_is_of_sticky()

    def _bounded_load_is_of_sticky(self) -> Iterator[Problem]:
        """Without stickiness nothing reads it."""
        if self.bounded_load_percent is not None and not self.sticky:
            yield Problem("bounded_load_percent", "only with sticky: true", self.bounded_load_percent)


Percent = Annotated[float, Field(ge=0, le=100)]


class VersionChoice(Model):
    """How clients name a model's version beside the path."""

    header: HeaderName | None = "x-tf-model-version"
    """Header that holds a label or a version's number; null: none does. A version in the path wins."""
    grpc: bool = True
    """Over gRPC too, and in splits by label: Envoy then adds the version to the message, which it buffers."""


class Canary(Model):
    """A share of the requests that name no version, for a newer one."""

    percent: Percent
    """Of the requests, or of the users; 0: nobody, and nothing is rewritten. At most two decimals."""
    label: Label | None = None
    """The label of the newer version, in the same servers."""
    stable: Label = "stable"
    """With `label`: the label of all other requests, which would get the newest version otherwise."""
    pool: Slug | None = None
    """Instead of a label: the pool that has the newer version."""
    sticky: bool = False
    """By user (`front_end.user_header`), so that each always gets the same; else each request by chance."""
    models: tuple[ModelName, ...] = ()
    """Which of the pool's models; unset, all of them."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._one_way_to_the_newer_version()
        yield from self._percent_has_two_decimals()
        yield from repeated("models", "", self.models)

    def _one_way_to_the_newer_version(self) -> Iterator[Problem]:
        """Either the same servers hold both versions, or another pool has the newer one."""
        if (self.label is None) == (self.pool is None):
            yield Problem("", "give exactly one: label: <label> or pool: <pool>")
        if self.label is not None and self.label == self.stable:
            yield Problem("label", "is also stable; the two must differ", self.label)
        if self.label is None and "stable" in self.model_fields_set:
            yield Problem("stable", "only with label", self.stable)

    def _percent_has_two_decimals(self) -> Iterator[Problem]:
        """Envoy splits by ten-thousandths."""
        if round(self.percent, 2) != self.percent:
            yield Problem("percent", "has more than two decimals", self.percent)


class Mirror(Model):
    """A pool that gets a copy of requests; what it answers is thrown away."""

    pool: Slug
    """It serves only models of this pool."""
    percent: Percent = 100
    """Of the requests that name no version."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._percent_has_two_decimals()

    def _percent_has_two_decimals(self) -> Iterator[Problem]:
        """Envoy splits by ten-thousandths."""
        if round(self.percent, 2) != self.percent:
            yield Problem("percent", "has more than two decimals", self.percent)


class Traffic(Model):
    """Which requests of a pool another pool gets; that pool then has no requests of its own."""

    canary: Canary | None = None
    """A share of the requests for a newer version."""
    mirror: Mirror | None = None
    """Copies for a pool on trial."""

    @property
    def helpers(self) -> tuple[tuple[str, str], ...]:
        """Pools that only help this one, each after the setting that says so."""
        named = (
            ("canary.pool", self.canary.pool if self.canary else None),
            ("mirror.pool", self.mirror.pool if self.mirror else None),
        )
        return tuple((setting, pool) for setting, pool in named if pool is not None)
