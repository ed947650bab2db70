"""What differs between two values, by place: inputs of a resource, a plan, the outputs."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from review.events import Step, Value

# What tells the entries of a list apart, where they are objects.
_KEYS = ("name", "label", "file", "target", "internal")


@dataclass(frozen=True, order=True)
class Change:
    """A value that differs; None where there is none. Texts of several lines are files."""

    path: str
    old: str | None
    new: str | None

    @property
    def is_file(self) -> bool:
        """Whether it is better told as a difference of lines."""
        return "\n" in (self.old or "") or "\n" in (self.new or "")

    def lines(self) -> list[str]:
        """The difference of a file's lines."""
        old, new = ((text or "").splitlines() for text in (self.old, self.new))
        return list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]


@dataclass(frozen=True)
class Group:
    """Resources to which the same happens for the same reason; `changes` are those of the first one.

    `own` names the places at which each resource changes in its own way.
    """

    operation: str
    type: str
    steps: tuple[Step, ...]
    changes: tuple[Change, ...]
    own: frozenset[str]


def changes(old: Value, new: Value) -> list[Change]:
    """Every place where two values differ, in order."""
    before, after = dict(_flat(old)), dict(_flat(new))
    paths = sorted(before.keys() | after.keys())
    found = [Change(path, before.get(path), after.get(path)) for path in paths]
    return [one for one in found if one.old != one.new]


def groups(steps: Sequence[Step]) -> list[Group]:
    """Steps by what happens and why, in the order in which each group begins."""
    found: dict[tuple[str, ...], list[tuple[Step, tuple[Change, ...]]]] = {}
    for step in steps:
        both = step.operation in ("update", "replace")
        differing = tuple(changes(step.old, step.new)) if both else ()
        places = (change.path for change in differing)
        role = step.labels.get("tf-serving.role", "")
        key = (step.operation, step.type, role, " ".join(step.because), *places)
        found.setdefault(key, []).append((step, differing))
    return [_group(together) for together in found.values()]


def _group(together: Sequence[tuple[Step, tuple[Change, ...]]]) -> Group:
    first, differing = together[0]
    same = set(differing).intersection(*(others for _, others in together))
    own = frozenset(change.path for change in differing if change not in same)
    return Group(first.operation, first.type, tuple(step for step, _ in together), differing, own)


def _flat(value: Value, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, child in value.items():
            yield from _flat(child, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        yield from _flat_list(value, path)
    elif value is not None:
        yield path, _text(value)


def _flat_list(values: Sequence[Value], path: str) -> Iterator[tuple[str, str]]:
    if all(isinstance(value, str) for value in values):
        # `--flag=value` and `NAME=value` by their names: one that comes between moves no other.
        named: dict[str, list[str]] = {}
        for value in values:
            name, equals, given = value.partition("=")
            named.setdefault(name, []).append(given if equals else "set")
        yield from ((f"{path}[{name}]", ", ".join(given)) for name, given in named.items())
        return
    if all(isinstance(value, list) and len(value) == 2 for value in values):
        yield from ((f"{path}[{name}]", _text(value)) for name, value in values)
        return
    key = next((key for key in _KEYS if all(isinstance(v, Mapping) and key in v for v in values)), None)
    for number, value in enumerate(values):
        if key is None:
            # A node of the plan has its name in its settings.
            spec = value.get("spec") if isinstance(value, Mapping) else None
            name = spec.get("name", number) if isinstance(spec, Mapping) else number
            yield from _flat(value, f"{path}[{name}]")
        else:
            rest = {name: child for name, child in value.items() if name != key}
            place = f"{path}[{value[key]}]"
            # An entry that is no more than a name and its value is called by its name alone.
            yield from _flat(next(iter(rest.values())) if len(rest) == 1 else rest, place)


def _text(value: Value) -> str:
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
