"""Rules about text: what was left in, placeholders and secrets."""

import re
from collections.abc import Iterator, Mapping
from typing import cast

from components.errors import Problem, looks_secret

_PLACEHOLDER = re.compile(
    r"<[^<>]+>|\b(change[-_]?me|changeit|todo|fixme|your[-_][a-z-]+|xxx+)\b|\$\{|\{\{", re.IGNORECASE
)


def nothing_is_left_to_fill_in(path: str, text: str) -> Iterator[Problem]:
    """A placeholder that somebody forgot passes every other check and fails on the host."""
    if _PLACEHOLDER.search(text) and not looks_secret(text):
        yield Problem(path, "looks like a placeholder that was left in", text)


def secrets_stay_out(path: str, text: str) -> Iterator[Problem]:
    """A stack file is committed, and its values go into state and labels in plain text."""
    if looks_secret(text):
        yield Problem(path, "looks like a secret, and stack files are committed; keep it out of them")


def texts(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Every text below a plain value, with its place in the stack file."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, child in cast("Mapping[str, object]", value).items():
            yield from texts(child, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list | tuple):
        for position, child in enumerate(value):
            yield from texts(child, f"{path}[{position}]")
