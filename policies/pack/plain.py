"""The one place that turns the SDK's proxies into plain values."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pulumi_policy.proxy import (
    UNKNOWN_ARCHIVE_VALUE,
    UNKNOWN_ARRAY_VALUE,
    UNKNOWN_ASSET_VALUE,
    UNKNOWN_BOOLEAN_VALUE,
    UNKNOWN_NUMBER_VALUE,
    UNKNOWN_OBJECT_VALUE,
    UNKNOWN_STRING_VALUE,
    UnknownValueError,
)


class Unknown:
    """A value that is known only once its resource exists."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()


class Secret:
    """A value that a stack's state keeps encrypted: only an audit meets it, and never asks for more."""

    def __repr__(self) -> str:
        return "SECRET"


SECRET: Final = Secret()
_SENTINELS = frozenset(
    {
        UNKNOWN_ARCHIVE_VALUE,
        UNKNOWN_ARRAY_VALUE,
        UNKNOWN_ASSET_VALUE,
        UNKNOWN_BOOLEAN_VALUE,
        UNKNOWN_NUMBER_VALUE,
        UNKNOWN_OBJECT_VALUE,
        UNKNOWN_STRING_VALUE,
    }
)


def plain(value: object) -> object:
    """A copy of dicts, lists and scalars alone, in which UNKNOWN stands for what raises or marks an unknown.

    Never throws: a proxy raises at the touch of an unknown, and one raise would silence a whole policy.
    """
    if isinstance(value, str):
        return UNKNOWN if value in _SENTINELS else value
    if isinstance(value, Mapping):
        return {str(key): _at(value, key) for key in value}
    if isinstance(value, Sequence):
        return [_at(value, position) for position in range(len(value))]
    # Protobuf has no whole numbers: 256 arrives as 256.0.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def plain_properties(value: object) -> dict[str, object]:
    """The properties of a resource; none where they are unknown as a whole."""
    found = plain(value)
    return found if isinstance(found, dict) else {}


def _at(values: Any, key: object) -> object:
    try:
        return plain(values[key])
    except UnknownValueError:
        return UNKNOWN
