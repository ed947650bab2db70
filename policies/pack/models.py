"""Which models a server is told to serve, read from its model list."""

import re

_COMMENT = re.compile(r"#[^\n]*")
_NAME = re.compile(r"\bname\s*:\s*(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')")


def model_names(text: str) -> tuple[str, ...]:
    """The names in a `models.config`, in order; nothing else in that file is called `name`."""
    return tuple(quoted[1:-1] for quoted in _NAME.findall(_COMMENT.sub("", text)))
