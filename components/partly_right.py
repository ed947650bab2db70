"""Rules that hold inside one part of a stack file, run on what is right of it beside a mistake.

Pydantic runs a model's rules only where all of its fields are right. Here a rule runs all the same, and what
it finds is told unless it looks at a value that is wrong.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from components.base import Model
from components.errors import Problem, join_path, nearest_keys

Place = tuple[int | str, ...]


def models_in(annotation: object, suffix: str = "") -> list[tuple[type[BaseModel], str]]:
    """The models that a field may hold, each with `[]` for every list that it is in."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [(annotation, suffix)]
    origin = get_origin(annotation)
    if origin is Annotated:
        return models_in(get_args(annotation)[0], suffix)
    if origin in (Union, UnionType):
        return [found for part in get_args(annotation) for found in models_in(part, suffix)]
    if origin is tuple:
        return models_in(get_args(annotation)[0], f"{suffix}[]")
    return []


def wrong_fields(model: type[BaseModel], keys: Iterable[str]) -> set[str]:
    """Fields that are not as meant, by the keys at which something is wrong.

    A key that the model does not know may be a slip for one that it does: that one is then not as meant.
    """
    known = list(model.model_fields)
    wrong: set[str] = set()
    for key in keys:
        wrong.update([key] if key in known else nearest_keys(key, known))
    return wrong


def broken_rules_beside_mistakes(
    model: type[BaseModel], value: object, mistakes: Iterable[Place], path: str = ""
) -> Iterator[Problem]:
    """Findings of the rules of `model` and of all below it, where one of `mistakes` is below them.

    `value` is what stands there; mistakes are where pydantic says, from there on.
    """
    below = [place for place in mistakes if place]
    if not below or not isinstance(value, Mapping):
        return
    keys = {str(place[0]) for place in below}
    if issubclass(model, Model):
        yield from _own_rules(model, value, wrong_fields(model, keys), path)
    for key in sorted(keys & model.model_fields.keys()):
        inside = [place[1:] for place in below if place[0] == key]
        models = models_in(model.model_fields[key].annotation)
        if len(models) == 1:
            yield from _below(models[0], value.get(key), inside, join_path(path, key))


def _below(
    found: tuple[type[BaseModel], str], value: object, mistakes: list[Place], path: str
) -> Iterator[Problem]:
    model, suffix = found
    if not suffix:
        yield from broken_rules_beside_mistakes(model, value, mistakes, path)
    elif suffix == "[]" and isinstance(value, list):
        for position, item in enumerate(value):
            inside = [place[1:] for place in mistakes if place[:1] == (position,)]
            yield from broken_rules_beside_mistakes(model, item, inside, f"{path}[{position}]")


def _own_rules(
    model: type[Model], value: Mapping[str, object], wrong: set[str], path: str
) -> Iterator[Problem]:
    """What the rules find that do not look at a wrong field: such a field is not there, nor its default."""
    right: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if name in value and name not in wrong:
            annotation: Any = field.rebuild_annotation()
            try:
                right[name] = TypeAdapter(annotation).validate_json(
                    json.dumps(value[name], default=str), strict=True
                )
            except ValidationError:  # a mistake of the whole, which is told at another place
                wrong = wrong | {name}
        elif field.is_required():
            wrong = wrong | {name}
    partly = model.model_construct(_fields_set=set(right), **right)
    for name in wrong & vars(partly).keys():
        del vars(partly)[name]
    vars(partly)["model_dump"] = _looks_at_every_field
    for rule in _rules_of(model):
        vars(partly)[rule] = _as_far_as_it_is_right(getattr(partly, rule))
    for problem in _as_far_as_it_is_right(partly._rules)():  # noqa: SLF001 - a model's rules are asked for here alone
        yield replace(problem, path=join_path(path, problem.path))


def _looks_at_every_field(**_options: object) -> object:
    raise AttributeError


def _rules_of(model: type[Model]) -> set[str]:
    """Names of the methods that `_rules` runs, one after the other."""
    own = (vars(each)["_rules"] for each in model.__mro__ if "_rules" in vars(each))
    named = {name for rules in own for name in rules.__code__.co_names}
    return {name for name in named if inspect.isgeneratorfunction(getattr(model, name, None))} - {"_rules"}


def _as_far_as_it_is_right(rule: Callable[[], Iterator[Problem]]) -> Callable[[], Iterator[Problem]]:
    def found() -> Iterator[Problem]:
        problems: list[Problem] = []
        try:
            problems.extend(rule())
        except AttributeError:  # it looks at a field that is not there
            return
        yield from problems

    return found
