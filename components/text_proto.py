"""Protocol buffer text format, as much of it as the server's configuration files need.

Strings are quoted, numbers and booleans are bare, a tuple repeats its field, a mapping is a message.
Scalars that the server declares as wrapper messages are written as one: `max_batch_size { value: 32 }`.
"""

import json
from collections.abc import Iterator, Mapping

Value = str | int | float | bool | Mapping[str, "Value"] | tuple["Value", ...]
Message = Mapping[str, Value]


def render(message: Message) -> str:
    """The message as text, fields in the order in which they are given."""
    return "".join(f"{line}\n" for line in _lines(message, ""))


def wrapped(value: str | int | float | bool) -> Message:
    """A scalar whose field is a wrapper message (google/protobuf/wrappers.proto)."""
    return {"value": value}


def _lines(message: Message, indent: str) -> Iterator[str]:
    for name, value in message.items():
        for item in value if isinstance(value, tuple) else (value,):
            if not isinstance(item, Mapping):
                yield f"{indent}{name}: {_scalar(item)}"
            elif len(item) == 1 and not isinstance(next(iter(item.values())), Mapping | tuple):
                yield f"{indent}{name} {{ {next(_lines(item, ''))} }}"
            elif not item:
                yield f"{indent}{name} {{}}"
            else:
                yield f"{indent}{name} {{"
                yield from _lines(item, f"{indent}  ")
                yield f"{indent}}}"


def _scalar(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=True)
        case _:
            return str(value)
