"""What a rule is: a pure function over plain views, and what a reader must know about it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pack.resource import Resource
from pack.stack import Stack
from pack.workload import Workload

Environment = Literal["local", "staging", "prod"]
ENVIRONMENTS: tuple[Environment, ...] = ("local", "staging", "prod")
Level = Literal["mandatory", "advisory", "disabled"]
Severity = Literal["low", "medium", "high", "critical"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What is wrong with one resource: where and with which value, and what to do about it."""

    resource: Resource
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}\n  Fix: {self.fix}"


@dataclass(frozen=True, kw_only=True)
class Params:
    """What the configuration of a rule says; without any, the strictest."""

    environment: Environment = "prod"
    values: Mapping[str, object] = field(default_factory=dict)

    def number(self, name: str, default: float) -> float:
        """A number that the rule's schema declares."""
        value = self.values.get(name, default)
        return float(value) if isinstance(value, int | float) else default

    def text(self, name: str, default: str) -> str:
        """A text that the rule's schema declares."""
        value = self.values.get(name, default)
        return value if isinstance(value, str) else default

    def texts(self, name: str, default: Sequence[str] = ()) -> tuple[str, ...]:
        """A list of texts that the rule's schema declares."""
        value = self.values.get(name)
        return tuple(str(item) for item in value) if isinstance(value, list) else tuple(default)


def params_of(config: Mapping[str, object]) -> Params:
    """What a configuration says of one rule; an environment that is none is the strictest."""
    values = dict(config)
    said = values.pop("environment", "prod")
    environment: Environment = next((known for known in ENVIRONMENTS if known == said), "prod")
    return Params(environment=environment, values=values)


Check = Callable[[Stack, Params], Iterable[Finding]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule of the pack.

    `scope` says what `check` is handed: a `resource` alone, before it is made, or the whole `stack`, which on
    `up` is judged only after its resources were made (so a preview must run first). `check` yields what is
    wrong, and nothing for what does not concern it. `protects` is one line, shown with every violation; `why`
    is public evidence, `exempt` how a workload is left out, `schema` the JSON schema of further settings.
    """

    name: str
    scope: Literal["resource", "stack"]
    protects: str
    severity: Severity
    steps: str
    why: tuple[str, ...]
    exempt: str
    levels: Mapping[Environment, Level]
    check: Check
    schema: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


class Subject(Protocol):
    """What a finding is about: a workload, a service."""

    @property
    def name(self) -> str:
        """Its own name, which the message begins with."""

    @property
    def resource(self) -> Resource:
        """The resource that declares it."""


def about(subject: Subject, what: str, fix: str) -> Finding:
    """A finding: `what` says where and which value ("ports[0]: 0.0.0.0:80: …")."""
    return Finding(resource=subject.resource, what=f"{subject.name}: {what}", fix=fix)


def unread(workload: Workload, name: str, what: str, fix: str) -> Iterator[Finding]:
    """A finding for each part of a view's field that is unknown or odd, named `what` ("GPU", "image").

    A rule that must know a field says so with this first: an unknown is no reason to pass.
    """
    for found in workload.unread.get(name, ()):
        words = "cannot be read" if found.odd else "is not known in preview"
        yield Finding(resource=workload.resource, what=f"{what} of {workload.name} {words}: {found}", fix=fix)


EVERYWHERE: Mapping[Environment, Level] = {
    "local": "mandatory",
    "staging": "mandatory",
    "prod": "mandatory",
}
"""Levels of a rule that nobody may break anywhere."""
