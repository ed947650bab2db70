"""Plain data as block YAML which every reader takes for the same data.

Every string is quoted as in JSON: to a reader of YAML 1.1, Envoy's among them, a bare `n` or `on` is a
boolean. Nothing is folded, and what stands twice is written twice.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

_BARE_KEY = re.compile(r"(?!(?:yes|no|on|off|true|false|null)$)[a-z][a-z0-9_.]+")


def render(document: Mapping[str, object]) -> str:
    """The document as text, keys in the order in which they are given."""
    return "".join(f"{line}\n" for line in _lines(document))


def _lines(value: object) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            name = key if _BARE_KEY.fullmatch(key) else json.dumps(key)
            if _is_block(item):
                yield f"{name}:"
                yield from (f"  {line}" for line in _lines(item))
            else:
                yield f"{name}: {json.dumps(item)}"
    elif _is_block(value) and isinstance(value, Sequence):
        for item in value:
            first, *rest = _lines(item)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield json.dumps(value)


def _is_block(value: object) -> bool:
    return isinstance(value, Mapping | list | tuple) and bool(value)
