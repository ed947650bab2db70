"""Edits of a stack file's text that leave all else as it is: comments, order and layout too."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from components.stack_yaml import read_yaml

Path = tuple[str | int, ...]
"""Where a value stands: `("config", "tf-serving:pools", 0, "name")`."""
REMOVED = object()
"""In place of a value: the key goes."""
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_WORDS = re.compile(r"true|false|null|yes|no|on|off|y|n", re.IGNORECASE)


class NotEditedError(Exception):
    """An edit that only a person can make; says where, and what it should come to."""

    def __init__(self, path: Path, value: object) -> None:
        step = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path[1:])
        place = step.lstrip(".").removeprefix("tf-serving:")
        wanted = "take it out" if value is REMOVED else f"it should be {_written(value)}"
        super().__init__(f"{place}: cannot be changed there without touching other lines: {wanted}")


@dataclass(frozen=True, order=True)
class _Splice:
    """Other text for a part of the text."""

    begin: int
    end: int
    text: str


def edited(text: str, changes: Mapping[Path, object]) -> str:
    """The text with scalars at some paths changed, and keys of mappings added or `REMOVED`.

    What was added stands after the mapping's `name`. Raises NotEditedError where the layout does not allow
    it, or where a line stands for several values (an alias).
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    splices = []
    for path, value in changes.items():
        splice = _splice(text, root, path, value)
        if splice is None:
            raise NotEditedError(path, value)
        splices.append(splice)
    done = text
    for splice in sorted(splices, reverse=True):
        done = done[: splice.begin] + splice.text + done[splice.end :]
    expected: Any = json.loads(json.dumps(read_yaml(text.encode())))  # what aliases share is written out
    for path, value in changes.items():
        *above, last = path
        parent = expected
        for step in above:
            parent = parent[step]
        if value is REMOVED:
            del parent[last]
        else:
            parent[last] = value
    if read_yaml(done.encode()) != expected:
        path, value = next(iter(changes.items()))
        raise NotEditedError(path, value)
    return done


def _splice(text: str, root: yaml.Node | None, path: Path, value: object) -> _Splice | None:
    *above, last = path
    parent = _at(root, above)
    found = _at(parent, [last])
    if value is REMOVED:
        return _removal(text, parent, str(last)) if isinstance(parent, yaml.MappingNode) else None
    if isinstance(found, yaml.ScalarNode):
        return _Splice(found.start_mark.index, found.end_mark.index, _written(value))
    if found is None and isinstance(parent, yaml.MappingNode):
        return _addition(text, parent, f"{last}: {_written(value)}")
    return None


def _at(node: yaml.Node | None, path: Sequence[str | int]) -> yaml.Node | None:
    for step in path:
        match node:
            case yaml.MappingNode():
                node = next((value for key, value in node.value if key.value == step), None)
            case yaml.SequenceNode() if isinstance(step, int) and step < len(node.value):
                node = node.value[step]
            case _:
                return None
    return node


def _addition(text: str, mapping: yaml.MappingNode, line: str) -> _Splice | None:
    for key, value in sorted(mapping.value, key=lambda pair: pair[0].value != "name"):
        if not isinstance(value, yaml.ScalarNode) or value.style in ("|", ">"):
            continue
        end = value.end_mark.index
        if mapping.flow_style:
            return _Splice(end, end, f", {line}")
        newline = "\r\n" if "\r\n" in text else "\n"
        stop = _end_of_line(text, end)
        return _Splice(stop, stop, f"{newline}{' ' * key.start_mark.column}{line}")
    return None


def _removal(text: str, mapping: yaml.MappingNode, name: str) -> _Splice | None:
    keys = [key.value for key, _ in mapping.value]
    position = keys.index(name)
    key, value = mapping.value[position]
    if mapping.flow_style:
        if position > 0:
            return _Splice(mapping.value[position - 1][1].end_mark.index, value.end_mark.index, "")
        return None
    begin = key.start_mark.index - key.start_mark.column
    if text[begin : key.start_mark.index].strip():
        return None  # it stands beside the dash of a list
    stop = _end_of_line(text, max(_ends(value)))
    after = re.compile(r"\r?\n").match(text, stop)
    return _Splice(begin, after.end() if after else stop, "")


def _ends(node: yaml.Node) -> Iterator[int]:
    """Where its text ends; a block's own mark is only at what comes next."""
    if not isinstance(node, yaml.CollectionNode) or node.flow_style:
        yield node.end_mark.index
    elif isinstance(node, yaml.MappingNode):
        for _, value in node.value:
            yield from _ends(value)
    else:
        for value in node.value:
            yield from _ends(value)


def _end_of_line(text: str, position: int) -> int:
    found = re.compile(r"\r?\n|\Z").search(text, position)
    return found.start() if found else len(text)


def _written(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_written(item)}' for key, item in value.items())}}}"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and not _WORDS.fullmatch(value):
        return value
    return json.dumps(value)
