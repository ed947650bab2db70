"""What every settings model is built on."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Self, cast

from pydantic import BaseModel, ConfigDict, model_validator

from components.errors import Problem, raise_if_any


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Put each field's docstring into a model's JSON schema.

    Pydantic can do it itself (`use_attribute_docstrings`), but as it defines the class: every run would then
    parse every model's source, and a preview would take a fiftieth longer.
    """
    for described in reversed(model.__mro__):  # a field of the model it extends has its words there
        if issubclass(described, Model) and described is not Model:
            _describe_own(schema, described)


def _describe_own(schema: dict[str, Any], model: type[BaseModel]) -> None:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    for field, text in pairwise(cast("ast.ClassDef", definition).body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
        ):
            schema["properties"][field.target.id]["description"] = inspect.cleandoc(
                ast.literal_eval(text.value)
            )


class Model(BaseModel):
    """Base of every settings model: frozen, nothing coerced, and a key that it does not know is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, defer_build=True, json_schema_extra=_describe
    )

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
    for position, value in enumerate(values):
        if value in values[:position]:
            suffix = f".{key}" if key else ""
            first = f"{path}[{values.index(value)}]{suffix}"
            yield Problem(f"{path}[{position}]{suffix}", f"is also {first}", value)
