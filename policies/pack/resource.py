"""A resource of a stack, whoever declared it, in plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Provider:
    """The provider that makes a resource."""

    urn: str
    type: str
    props: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Resource:
    """`props` are the inputs that its program gave, under the provider's names (`networkMode`).

    `depends_on` holds URNs, and is empty where a rule sees resources one by one.
    """

    type: str
    urn: str
    name: str
    props: Mapping[str, object]
    provider: Provider | None = None
    parent: str | None = None
    depends_on: tuple[str, ...] = ()
    delete_before_replace: bool = False
    protect: bool = False
    ignore_changes: tuple[str, ...] = ()
    stack_tags: Mapping[str, str] = field(default_factory=dict)
