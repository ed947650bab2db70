"""What every settings model is built on."""

from collections.abc import Iterator, Sequence
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from components.errors import Problem, raise_if_any


class Model(BaseModel):
    """Base of every settings model: frozen, nothing coerced, and a key that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    def _rules(self) -> Iterator[Problem]:
        """Findings of the rules that hold inside this model: one method a rule, named for it."""
        yield from ()

    @model_validator(mode="after")
    def _every_rule_holds(self) -> Self:
        # One validator for all rules: pydantic stops at the first that raises, and all findings are wanted.
        raise_if_any(self._rules())
        return self


def repeated(path: str, key: str, values: Sequence[object]) -> Iterator[Problem]:
    """A problem for each value that stood earlier in the list at `path` (`key` of its items, if any)."""
    suffix = f".{key}" if key else ""
    seen: dict[object, int] = {}
    for position, value in enumerate(values):
        first = seen.setdefault(value, position)
        if first != position:
            yield Problem(f"{path}[{position}]{suffix}", f"is also {path}[{first}]{suffix}", value)
