"""YAML of a stack file, read without the surprises of YAML 1.1.

Pulumi reads stack files with another parser than PyYAML. Where readers differ (`yes`, `1:30`, `010`, dates) a
value stays text here and its field refuses it, so that what loads means the same to both. A key given twice,
which PyYAML lets win silently, is refused, as Pulumi does.
"""

import re

import yaml

_TAG = "tag:yaml.org,2002:"
_PLAIN = {
    f"{_TAG}{name}": re.compile(pattern)
    for name, pattern in {
        "bool": r"true|True|TRUE|false|False|FALSE",
        "int": r"[-+]?(0|[1-9][0-9]{0,18})",
        "float": r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan",
        "null": r"~|null|Null|NULL|",
        "merge": r"<<",
    }.items()
}
_MOST_VALUES = 1_000_000
_ACCEPTED_TAGS = {*_PLAIN, *(f"{_TAG}{name}" for name in ("str", "map", "seq"))}


class StackFileSyntaxError(Exception):
    """The text is no YAML that a stack file may be; says the line where one is known."""


class _Loader(yaml.SafeLoader):
    def resolve(self, kind: type[yaml.Node], value: str, implicit: tuple[bool, bool]) -> str:
        if kind is yaml.ScalarNode and implicit[0]:
            return next((tag for tag, plain in _PLAIN.items() if plain.fullmatch(value)), f"{_TAG}str")
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call,no-any-return]

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None and _values_in(node, {}) > _MOST_VALUES:
            raise _error(f"its aliases stand for more than {_MOST_VALUES} values", node)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:  # noqa: ARG002
        if node.tag not in _ACCEPTED_TAGS:
            raise _error(f"the tag {node.tag} is not accepted", node)
        if isinstance(node, yaml.MappingNode):
            self._check_keys(node)
        return super().construct_object(node, deep=True)  # deep, so that an alias of itself is an error

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == f"{_TAG}merge":
                continue
            if key.tag != f"{_TAG}str":
                which = f"the key {key.value}" if isinstance(key, yaml.ScalarNode) else "a key"
                raise _error(f"{which} must be text, in quotes", key)
            if key.value in seen:
                raise _error(f"the key {key.value} is given twice", key)
            seen.add(key.value)


def read_yaml(text: bytes) -> object:
    """The document as plain values: mappings with text keys, lists, text, numbers, booleans, None.

    Raises StackFileSyntaxError.
    """
    try:
        return yaml.load(text.decode("utf-8-sig"), Loader=_Loader)  # noqa: S506 - builds plain values only
    except UnicodeDecodeError as error:
        raise StackFileSyntaxError(f"is not UTF-8: {error.reason} at byte {error.start}") from None
    except yaml.YAMLError as error:
        raise StackFileSyntaxError(f"is not YAML: {_one_line(error)}") from None
    except RecursionError:
        raise StackFileSyntaxError("is nested too deeply") from None
    except (ValueError, LookupError) as error:  # `!!int` and the like, spelt out before something else
        raise StackFileSyntaxError(f"is not YAML: {error}") from None


def _values_in(node: yaml.Node, counted: dict[int, int]) -> int:
    """How many values a node comes to once every alias is written out: a few lines can stand for billions."""
    if id(node) not in counted:
        counted[id(node)] = 1  # an alias of itself is an error of its own
        children: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            children = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            children = node.value
        counted[id(node)] += sum(_values_in(child, counted) for child in children)
    return counted[id(node)]


def _error(message: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=message, problem_mark=node.start_mark)


def _one_line(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return str(error).splitlines()[0]
    what = ", ".join(part for part in (error.context, error.problem) if part)
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: {what}" if mark else what
