"""Settings of a pool that only Envoy reads: how requests are shared out over its instances."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from components.base import Model
from components.errors import Problem

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
