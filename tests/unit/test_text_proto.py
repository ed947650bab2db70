"""Text format: what is rendered is what protobuf's own parser reads back."""

import pytest
from google.protobuf import struct_pb2, text_format
from hypothesis import given
from hypothesis import strategies as st

from components.text_proto import Message, render, wrapped


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({}, ""),
        ({"a": 1}, "a: 1\n"),
        ({"a": True, "b": False}, "a: true\nb: false\n"),
        ({"a": 0.5}, "a: 0.5\n"),
        ({"a": "b"}, 'a: "b"\n'),
        ({"a": 'say "hi"\n\\'}, 'a: "say \\"hi\\"\\n\\\\"\n'),
        ({"a": (1, 2)}, "a: 1\na: 2\n"),
        ({"a": ()}, ""),
        ({"a": {}}, "a {}\n"),
        ({"a": wrapped(32)}, "a { value: 32 }\n"),
        ({"a": {"b": {}}}, "a {\n  b {}\n}\n"),
        ({"a": {"b": (1, 2)}}, "a {\n  b: 1\n  b: 2\n}\n"),
        ({"a": {"b": 1, "c": {"d": 2}}}, "a {\n  b: 1\n  c { d: 2 }\n}\n"),
        ({"a": ({"b": 1, "c": 2}, {})}, "a {\n  b: 1\n  c: 2\n}\na {}\n"),
    ],
)
def test_a_message_is_written_field_by_field_in_the_order_given(message: Message, text: str) -> None:
    assert render(message) == text


PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E))


@given(PRINTABLE)
def test_any_ascii_text_survives_the_parser(text: str) -> None:
    read = text_format.Parse(render({"string_value": text}), struct_pb2.Value())
    assert read.string_value == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_survives_the_parser(number: float) -> None:
    read = text_format.Parse(render({"number_value": number}), struct_pb2.Value())
    assert read.number_value == number


def test_a_boolean_is_not_written_as_the_number_it_is_in_python() -> None:
    assert render({"a": {"b": True, "c": 1}}) == "a {\n  b: true\n  c: 1\n}\n"
