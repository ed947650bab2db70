"""Whatever is done to a good stack file, people get settings or a refusal that names a place in the file."""

import copy
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from components.errors import SettingsError
from components.settings import Settings
from components.stack_file import load_settings
from components.stack_yaml import StackFileSyntaxError, read_yaml
from tests import stacks

GOOD = (stacks.one_node(), stacks.two_nodes())
JARGON = ("pydantic", "For further information", "type=", "Value error", "Traceback", "<class")

Place = tuple[str | int, ...]


def places(value: object, here: Place = ()) -> list[Place]:
    """Every place in a document, the outermost first."""
    below: list[Place] = []
    if isinstance(value, dict):
        below = [place for key, item in value.items() for place in places(item, (*here, key))]
    elif isinstance(value, list):
        below = [place for index, item in enumerate(value) for place in places(item, (*here, index))]
    return [here, *below] if here else below


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["gpu-01", "main", "GPU-", "-1", "latest", "172.29.80.0/24", "ssh://", "0-15", "\ud800"]),
    st.dates(),
)
KEYS = st.one_of(st.text(max_size=8), st.sampled_from(["nodes", "models", "labels", "[key]", "a.b", "x[0]"]))
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mutated(draw: st.DrawFn) -> stacks.Config:
    """A good stack file after one to six changes: a value replaced, removed, doubled or added to."""
    config = copy.deepcopy(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(1, 6))):
        if not places(config):
            break
        *outer, last = draw(st.sampled_from(places(config)))
        parent: Any = config
        for step in outer:
            parent = parent[step]
        change = draw(st.sampled_from(["replace", "remove", "double", "extend"]))
        if change == "replace":
            parent[last] = draw(ANYTHING)
        elif change == "remove":
            del parent[last]
        elif change == "double" and isinstance(last, int):
            parent.append(copy.deepcopy(parent[last]))
        elif isinstance(parent, dict):
            parent[draw(KEYS)] = draw(ANYTHING)
    return config


def check_refusal(error: SettingsError, config: stacks.Config) -> None:
    """Holds of every refusal."""
    said = str(error)
    assert error.problems
    assert not [word for word in JARGON if word in said]
    assert "; nothing was changed\n" in said
    keys = tuple({*config, *Settings.model_fields, "config", '""'} - {""})
    assert [problem.path for problem in error.problems if not problem.path.startswith(keys)] == []


@given(mutated())
def test_a_broken_stack_file_is_refused_at_a_key_of_the_file_and_nothing_else_is_raised(
    config: stacks.Config,
) -> None:
    try:
        settings = load_settings(config, stacks.SOURCE)
    except SettingsError as error:
        check_refusal(error, config)
    else:
        assert isinstance(settings, Settings)
        assert stacks.plan(config).nodes


@given(mutated())
def test_a_problem_is_told_once(config: stacks.Config) -> None:
    lines = [str(problem) for problem in stacks.problems(config)]
    assert len(lines) == len(set(lines))


@given(st.text(max_size=200))
def test_any_text_is_read_as_plain_values_or_refused(text: str) -> None:
    try:
        read_yaml(text.encode("utf-8", "surrogatepass"))
    except StackFileSyntaxError as error:
        assert str(error)  # noqa: PT017 - either outcome is right


@given(st.binary(max_size=200))
def test_any_bytes_are_read_as_plain_values_or_refused(data: bytes) -> None:
    try:
        read_yaml(data)
    except StackFileSyntaxError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either outcome is right


# Without digits and odd line breaks: PyYAML, which writes here, leaves text such as 1e3 bare.
TEXT = st.text(st.characters(exclude_categories=["Nd", "Cs", "Cc", "Zl", "Zp"]), max_size=10)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
def test_plain_values_written_as_yaml_are_read_back(value: object) -> None:
    assert read_yaml(yaml.safe_dump(value, allow_unicode=True).encode()) == value
