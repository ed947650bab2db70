"""Settings of a pool that only Envoy reads: which requests it gets, and how its instances share them."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from components.base import Model, repeated
from components.errors import Problem
from components.types import HeaderName, HeaderValue, Label, ModelName, RestPath, Slug

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


def two_decimals(field: str, percent: float) -> Iterator[Problem]:
    """Envoy splits by ten-thousandths."""
    if round(percent, 2) != percent:
        yield Problem(field, "has more than two decimals", percent)


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
        yield from two_decimals("percent", self.percent)
        yield from repeated("models", "", self.models)

    def _one_way_to_the_newer_version(self) -> Iterator[Problem]:
        """Either the same servers hold both versions, or another pool has the newer one."""
        if (self.label is None) == (self.pool is None):
            yield Problem("", "give exactly one: label: <label> or pool: <pool>")
        if self.label is not None and self.label == self.stable:
            yield Problem("label", "is also stable; the two must differ", self.label)
        if self.label is None and "stable" in self.model_fields_set:
            yield Problem("stable", "only with label", self.stable)


class Mirror(Model):
    """A pool that gets a copy of requests; what it answers is thrown away."""

    pool: Slug
    """It serves only models of this pool."""
    percent: Percent = 100
    """Of the requests that name no version."""

    def _rules(self) -> Iterator[Problem]:
        yield from two_decimals("percent", self.percent)


class Standby(Model):
    """A pool that takes over what this one has too few healthy instances for."""

    pool: Slug
    """It serves the same models, in the same versions; it may stand by for several pools."""
    from_healthy_percent: Annotated[int, Field(ge=10, le=100)] = 100
    """Below this share of healthy instances it gets the rest. Requests that stick to a user: always 71."""


class HeaderMatch(Model):
    """A header, exactly as it must be."""

    name: HeaderName
    """Its name."""
    value: HeaderValue
    """Its whole value."""


class Dedicated(Model):
    """A pool for hot requests alone; while none of it is healthy, they go to this pool too."""

    pool: Slug
    """It serves the same models, in the same versions."""
    header: HeaderMatch | None = None
    """Requests with this header."""
    path: RestPath | None = None
    """REST requests whose path begins so: /v1/models/<model>, and then as far as is needed."""
    models: tuple[ModelName, ...] = ()
    """Requests for these models; over gRPC only those that name theirs in the header x-tf-model."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._something_tells_its_requests_apart()
        yield from repeated("models", "", self.models)

    def _something_tells_its_requests_apart(self) -> Iterator[Problem]:
        """Without, every request would be a hot one. What is given must all hold."""
        if self.header is None and self.path is None and not self.models:
            yield Problem("", "give at least one of header, path and models")


class Traffic(Model):
    """Which requests of a pool another pool gets; that pool then has no requests of its own."""

    standby: Standby | None = None
    """What takes over."""
    dedicated: tuple[Dedicated, ...] = ()
    """Pools for hot requests; the first that matches."""
    canary: Canary | None = None
    """A share of the requests for a newer version."""
    mirror: Mirror | None = None
    """Copies for a pool on trial."""

    @property
    def helpers(self) -> tuple[tuple[str, str], ...]:
        """Pools that only help this one, each after the setting that says so."""
        named = (
            ("standby.pool", self.standby.pool if self.standby else None),
            *((f"dedicated[{d}].pool", dedicated.pool) for d, dedicated in enumerate(self.dedicated)),
            ("canary.pool", self.canary.pool if self.canary else None),
            ("mirror.pool", self.mirror.pool if self.mirror else None),
        )
        return tuple((setting, pool) for setting, pool in named if pool is not None)
