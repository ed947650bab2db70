"""What a drill is."""

from collections.abc import Callable
from dataclasses import dataclass

from drills.stage import Stage, Traffic

ENOUGH = 10_000
"""Requests that a drill has at least."""


@dataclass(frozen=True, kw_only=True)
class Play:
    """One drill: `run` plays it and gives back the traffic; what it asserts is said by `holds`."""

    number: int
    title: str
    holds: str
    run: Callable[[Stage], Traffic]
