"""Which models a server is told to serve, read from its model list."""

import re

from pack.stack import Stack
from pack.workload import Workload

_COMMENT = re.compile(r"#[^\n]*")
_NAME = re.compile(r"\bname\s*:\s*(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')")


def model_names(text: str) -> tuple[str, ...]:
    """The names in a `models.config`, in order; nothing else in that file is called `name`."""
    return tuple(quoted[1:-1] for quoted in _NAME.findall(_COMMENT.sub("", text)))


def served(stack: Stack, server: Workload) -> tuple[str, ...]:
    """The models of a server, sorted: by its model list, its flag or its label; none where nothing tells."""
    listed = model_names(stack.files(server).get(server.flag("model_config_file") or "", ""))
    if listed:
        return tuple(sorted(listed))
    named = server.flag("model_name")
    if named and not server.flag("model_config_file"):
        return (named,)
    said = (server.label("models") or "").split(",")
    return tuple(sorted(name.strip() for name in said if name.strip()))
