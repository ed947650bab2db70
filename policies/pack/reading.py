"""Reads typed values out of plain properties, and keeps what could not be read."""

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pack.plain import SECRET, UNKNOWN


@dataclass(frozen=True, kw_only=True)
class Unread:
    """A value that a rule cannot judge: `odd` says what stands there instead, None where it is unknown."""

    path: str
    odd: str | None = None

    def __str__(self) -> str:
        return f"{self.path} is {self.odd}" if self.odd else self.path


@dataclass
class Reader:
    """Every method takes the value, where it stands, and the field of the view that it belongs to.

    None (or nothing) comes back for what is absent, unknown or odd; the last two are kept in `unread`.
    """

    unread: dict[str, list[Unread]] = field(default_factory=dict)

    def text(self, value: object, path: str, field_name: str) -> str | None:
        """A text; numbers and booleans are written as in YAML."""
        if isinstance(value, bool | int | float):
            return json.dumps(value)
        if isinstance(value, str):
            return value
        self.odd(value, path, field_name, "a text")
        return None

    def number(self, value: object, path: str, field_name: str) -> float | None:
        """A number, also one that is written as text."""
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        if isinstance(value, str):
            try:
                return float(value)
            except ValueError:
                pass
        self.odd(value, path, field_name, "a number")
        return None

    def whole(self, value: object, path: str, field_name: str) -> int | None:
        """A whole number."""
        found = self.number(value, path, field_name)
        if found is not None and not float(found).is_integer():
            self.odd(value, path, field_name, "a whole number")
            return None
        return None if found is None else int(found)

    def flag(self, value: object, path: str, field_name: str) -> bool | None:
        """A boolean, also one that is written as text."""
        if value in ("true", "false"):
            return value == "true"
        if isinstance(value, bool):
            return value
        self.odd(value, path, field_name, "true or false")
        return None

    def items(self, value: object, path: str, field_name: str) -> Iterator[tuple[str, object]]:
        """Each item of a list with where it stands."""
        if not isinstance(value, list):
            self.odd(value, path, field_name, "a list")
            return
        for position, item in enumerate(value):
            yield f"{path}[{position}]", item

    def texts(self, value: object, path: str, field_name: str) -> tuple[str, ...]:
        """A list of texts, without those that cannot be read."""
        found = (self.text(item, at, field_name) for at, item in self.items(value, path, field_name))
        return tuple(item for item in found if item is not None)

    def mapping(self, value: object, path: str, field_name: str) -> Mapping[str, object]:
        """An object; an empty one for what is none."""
        if isinstance(value, dict):
            return value
        self.odd(value, path, field_name, "an object")
        return {}

    def texts_of(self, holder: Mapping[str, object], name: str) -> dict[str, str]:
        """The texts of a mapping by their names, such as labels."""
        found = self.mapping(holder.get(name), name, "labels")
        texts = {key: self.text(value, f"{name}.{key}", "labels") for key, value in found.items()}
        return {key: value for key, value in texts.items() if value is not None}

    def objects(
        self, value: object, path: str, field_name: str
    ) -> Iterator[tuple[str, Mapping[str, object]]]:
        """Each object of a list with where it stands."""
        for at, item in self.items(value, path, field_name):
            if item is not None:
                yield at, self.mapping(item, at, field_name)

    def odd(self, value: object, path: str, field_name: str, wanted: str) -> None:
        """Keep a value that is no `wanted`, or unknown; an absent one (None) is neither."""
        if value is None:
            return
        odd = None if value is UNKNOWN else f"{_kind(value)}, not {wanted}"
        self.unread.setdefault(field_name, []).append(Unread(path=path, odd=odd))


def decoded(text: str) -> str:
    """What a text in base64 stands for, a secret one if it was; what is no base64 or no text is left out."""
    try:
        return type(text)(b64decode(text).decode("utf-8", "ignore"))
    except ValueError:
        return ""


def _kind(value: object) -> str:
    """What stands there, without a value that may be a secret."""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if value is SECRET:
        return "an encrypted secret"
    names = {dict: "an object", list: "a list", str: "a text"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), type(value).__name__)
