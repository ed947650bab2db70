"""Block YAML: read back, it is the data that was written."""

import yaml
from hypothesis import given
from hypothesis import strategies as st

from components.block_yaml import render

TEXT = st.text(st.characters(codec="ascii"), max_size=12) | st.sampled_from(
    ["n", "on", "1.5", "null", "~", "- a"]
)
DATA = st.recursive(
    st.booleans() | st.integers() | st.floats(0.001, 1000) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
)


@given(st.dictionaries(TEXT, DATA, min_size=1))
def test_what_is_read_back_is_what_was_written(document: dict[str, object]) -> None:
    assert yaml.safe_load(render(document)) == document


def test_the_text_is_laid_out_as_people_write_it() -> None:
    document: dict[str, object] = {"a_list": [{"name": "x", "on": True}, [1, 2]], "@type": "y", "none": {}}
    assert render(document) == (
        'a_list:\n  - name: "x"\n    "on": true\n  - - 1\n    - 2\n"@type": "y"\nnone: {}\n'
    )


def test_a_long_string_stays_on_one_line() -> None:
    assert render({"regex": "word " * 1000}).count("\n") == 1
