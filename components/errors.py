"""What is wrong with a stack file, said to people: path, value, what is accepted; all at once."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from components.facts import facts
from components.types import PATTERN_WORDS

_SECRET_KEY = re.compile(r"pass(word|phrase)?|secret|token|api_?key|credential|private_?key", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
_SECRET_VALUE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\b(AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{30,}"
    r"|\bgithub_pat_\w{20,}|\bglpat-[\w-]{20,}|\beyJ[\w-]{10,}\.[\w-]{10,}\.|\bxox[abpr]-[\w-]{10,}"
    r"|\bhf_[A-Za-z0-9]{20,}|\bsk-[\w-]{20,}|\bAIza[\w-]{30,}|\b(npm|dckr_pat)_[\w-]{20,}"
    r"|://[^/\s:@]+:(?!\(hidden\))[^/\s@]+@|\b(password|passwd|pwd|secret|token|api_?key)=\S+",
    re.IGNORECASE,
)
_HIDDEN = "(hidden)"
# Pydantic's words for these are those of Python and of JSON.
_KINDS = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a mapping: keys with values",
    "model_type": "must be a mapping: keys with values",
}
_NO_VALUE = object()
_LONGEST_PATH, _LONGEST_VALUE, _LONGEST_MESSAGE = 120, 120, 600  # an image with its digest fits


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where (`pools[0].slots`), the value found there, and what is accepted."""

    path: str
    message: str
    value: object = _NO_VALUE
    kind: str = ""

    def __str__(self) -> str:
        """`path: value: message`, the value left out where there is none or it may be a secret."""
        path, message = _bounded(self.path, _LONGEST_PATH), _bounded(self.message, _LONGEST_MESSAGE)
        if self.value is _NO_VALUE:
            return f"{path}: {message}"
        return f"{path}: {_shown(self.path, self.value)}: {message}"


class SettingsError(Exception):
    """A stack file that cannot be used; `problems` holds every reason, in the order of the file."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        lines = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(f"{source}: {count}; nothing was changed\n{lines}")


class RuleViolations(ValueError):  # noqa: N818 - read as a noun where it is raised
    """Problems that one model's rules found, with paths relative to that model."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in problems))


def raise_if_any(problems: Iterable[Problem]) -> None:
    """Raise `RuleViolations` when there is at least one problem."""
    found = list(problems)
    if found:
        raise RuleViolations(found)


def problems_of(error: ValidationError, accepted_keys: dict[str, list[str]]) -> list[Problem]:
    """Pydantic's findings in our words; `accepted_keys` maps the path of an object to the keys it knows."""
    problems: list[Problem] = []
    for detail in error.errors(include_url=False):
        path = _path(detail["loc"])
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, RuleViolations):
            problems += [Problem(join_path(path, p.path), p.message, p.value) for p in cause.problems]
        else:
            problems.append(_problem(path, detail, accepted_keys))
    return [problem for problem in problems if not _is_shadow(problem, problems)]


def in_file_order(problems: Iterable[Problem], config: object) -> list[Problem]:
    """The problems as somebody who reads the file downwards meets them; what is missing comes last."""
    return sorted(problems, key=lambda problem: _position(problem.path, config))


def _position(path: str, config: object) -> list[int]:
    """For each step of the path, how many of its siblings come before it in the file."""
    position = []
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(config, Mapping):
            keys = list(config)
            position.append(keys.index(step) if step in keys else len(keys))
            config = config.get(step)
        elif isinstance(config, Sequence) and step.isdecimal() and int(step) < len(config):
            config = config[int(step)]
            position.append(int(step))
    return position


def _is_shadow(problem: Problem, problems: Sequence[Problem]) -> bool:
    # A list whose item is wrong is reported as too short as well; only the item is news.
    return problem.kind == "too_short" and any(
        other.path.startswith(f"{problem.path}[") for other in problems
    )


def _problem(path: str, detail: ErrorDetails, accepted_keys: dict[str, list[str]]) -> Problem:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    match kind:
        case "missing":
            return Problem(path, "is required")
        case "extra_forbidden":
            *parent, key = detail["loc"]
            accepted = accepted_keys.get(re.sub(r"\[\d+\]", "[]", _path(parent)), [])
            return Problem(path, unknown_key(str(key), accepted), value)
        case "json_invalid":
            # Values reach the models as JSON, which only text with half a character in it fails to become.
            return Problem("config", "holds text that is not valid Unicode")
        case "string_type" if isinstance(value, int | float):
            return Problem(path, "must be text: put it in quotes", value)
        case "int_type" | "float_type" if isinstance(value, str) and re.fullmatch(r"[-+]?[\d.]+", value):
            return Problem(path, f"{_KINDS[kind]}, without quotes", value)
        case "too_short" | "too_long":
            bound = context["min_length"] if kind == "too_short" else context["max_length"]
            few = "at least" if kind == "too_short" else "at most"
            return Problem(path, f"must hold {few} {bound} {'item' if bound == 1 else 'items'}", value, kind)
        case _ if kind in _KINDS:
            return Problem(path, _KINDS[kind], value, kind)
        case "string_pattern_mismatch":
            return Problem(
                path, f"accepted: {PATTERN_WORDS.get(context['pattern'], context['pattern'])}", value
            )
        case "value_error":
            return Problem(path, str(context["error"]), value)
        case _:
            message = detail["msg"]
            return Problem(path, message[0].lower() + message[1:], value, kind)


def nearest_keys(key: str, accepted: Sequence[str]) -> list[str]:
    """The key that was most likely meant by one that is not known, if any is near."""
    return difflib.get_close_matches(key, accepted, n=1)


def unknown_key(key: str, accepted: Sequence[str]) -> str:
    """The message for a key that settings do not know, with the nearest one that they do."""
    # A slip of the keyboard is nearer than what people take from elsewhere: `gpu` for `gpus`.
    slip = difflib.get_close_matches(key, accepted, n=1, cutoff=0.8)
    if key in facts().invented and not slip:
        return f"no such setting: {facts().invented[key]}"
    near = slip or nearest_keys(key, accepted)
    guess = f"; did you mean {near[0]}?" if near else ""
    return f"unknown key{guess} (accepted: {', '.join(accepted)})" if accepted else f"unknown key{guess}"


def _path(location: Sequence[int | str]) -> str:
    path = ""
    for part in location:
        if part == "[key]" and path:  # the key of a mapping is at fault, not its value
            continue
        step = f"[{part}]" if isinstance(part, int) else part or '""'
        path = join_path(path, step)
    return path


def join_path(parent: str, child: str) -> str:
    """The path of what is at `child` below `parent`."""
    if not parent or not child or child.startswith("["):
        return parent + child
    return f"{parent}.{child}"


def looks_secret(text: str) -> bool:
    """Whether a text has the form of a key, a token or a password."""
    return _SECRET_VALUE.search(text) is not None


def _shown(path: str, value: object) -> str:
    if _SECRET_KEY.search(path) or looks_secret(path):
        return _HIDDEN
    text = repr(_without_secrets(value))
    return _bounded(text, _LONGEST_VALUE)


def _bounded(text: str, most: int) -> str:
    """Text for a terminal: nothing in it moves the cursor or turns the line around, the middle may be cut."""
    if len(text) > most:
        head = (most - 3) // 2
        text = f"{text[:head]}...{text[len(text) - (most - 3 - head) :]}"
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def _without_secrets(value: object) -> object:
    match value:
        case str():
            shown = _PASSWORD_IN_URL.sub(rf"\1{_HIDDEN}@", value)
            return _HIDDEN if looks_secret(shown) else shown
        case Mapping():
            return {
                key: _HIDDEN if _SECRET_KEY.search(str(key)) else _without_secrets(item)
                for key, item in value.items()
            }
        case list() | tuple():
            return [_without_secrets(item) for item in value]
        case _:
            return value
