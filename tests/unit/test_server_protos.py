"""The double of the server's parser is as strict as the server: what is refused there is refused here."""

from typing import Any

import pytest
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2 as servers_own

from components import server_protos

MODEL = 'name: "m" base_path: "/m" model_platform: "tensorflow"'

REFUSED_BATCHING = [
    "max_batch_size: 32",
    "batch_timeout_micros: 2000",
    "thread_pool_name: 'x'",
    "allowed_batch_sizes { value: 32 }",
    "pad_variable_length_inputs { value: true }",
    "enable_large_batch_splitting: true",
    "max_batch_size { value: 1 } max_batch_size { value: 2 }",
    "max_batch_size { value: '32' }",
    "max_batch_sizes { value: 32 }",
    "low_priority_max_batch_size { value: 1 }",
    '{"max_batch_size": {"value": 32}}',
    "\ufeffmax_batch_size { value: 32 }",
    "thread_pool_name { value: “x” }",
]
REFUSED_MODELS = [
    f"model_config_list {{ config {{ {MODEL} batching_parameters {{ max_batch_size {{ value: 1 }} }} }} }}",
    "batching_parameters { max_batch_size { value: 32 } }",
    f"model_config_list {{ config {{ {MODEL} optimization {{ gpu {{ }} }} }} }}",
    f"model_config_list {{ config {{ {MODEL} version_policy {{ all {{}} }} }} }}",
    f"model_config_list {{ config {{ {MODEL} model_version_policy: LATEST_VERSION }} }}",
    f"model_config_list {{ config {{ {MODEL} model_version_policy {{ all {{}} latest {{}} }} }} }}",
    f'model_config_list {{ config {{ {MODEL} version_labels {{ key: "a" value: "1" }} }} }}',
    f'model_config_list {{ config {{ {MODEL} version_labels: {{"a": 1}} }} }}',
    f'model_config_list {{ config {{ {MODEL} name: "again" }} }}',
    "model_config_list {} model_config_list {}",
    f"config {{ {MODEL} }}",
    f"\ufeffmodel_config_list {{ config {{ {MODEL} }} }}",
    "model_config_list { config { name: “m” } }",
    '{"model_config_list": {"config": []}}',
    f"model_config_list {{ config {{ {MODEL} logging_config {{}} }} }}",
    "custom_model_config {}",
]
ACCEPTED_MODELS = [
    "",
    "model_config_list {}",
    f"model_config_list: {{ config: {{ {MODEL}, model_version_policy: {{ all: {{}} }} }}, }}  # a comment",
    f"model_config_list {{ config {{ {MODEL} model_version_policy {{ specific {{ versions: [1,2] }} }} }} }}",
]


@pytest.mark.parametrize("text", REFUSED_BATCHING)
def test_batching_text_that_the_server_refuses_is_refused(text: str) -> None:
    with pytest.raises(text_format.ParseError):
        server_protos.batching_parameters(text)


@pytest.mark.parametrize("text", REFUSED_MODELS)
def test_a_model_list_that_the_server_refuses_is_refused(text: str) -> None:
    with pytest.raises(text_format.ParseError):
        server_protos.model_server_config(text)


@pytest.mark.parametrize("text", ACCEPTED_MODELS)
def test_a_model_list_that_the_server_accepts_is_accepted(text: str) -> None:
    server_protos.model_server_config(text)


def test_batching_text_that_the_server_accepts_is_accepted() -> None:
    message = server_protos.batching_parameters(
        "max_batch_size: { value: 32 }, allowed_batch_sizes: [1, 8, 32];"
    )
    assert server_protos.values(message) == {"max_batch_size": 32, "allowed_batch_sizes": [1, 8, 32]}


def test_field_numbers_are_those_of_the_server() -> None:
    # As bytes, since names alone would not tell a wrong number: 100, 101 and 102 are the policy's own.
    message = server_protos.model_server_config(
        'model_config_list { config { name: "m" model_version_policy { all {} } version_labels '
        '{ key: "a" value: 3 } } }'
    )
    assert message.SerializeToString().hex(" ") == (
        "0a 11 0a 0f 0a 01 6d 3a 03 aa 06 00 42 05 0a 01 61 10 03"
    )


LEFT_OUT = {"ModelConfig": {"model_type", "logging_config"}, "ModelServerConfig": {"custom_model_config"}}


def shape(message: Any) -> dict[str, dict[str, object]]:
    """Fields of a message and of every message below it, by the message's own name."""
    fields = [field for field in message.fields if field.name not in LEFT_OUT.get(message.name, set())]
    shapes: dict[str, dict[str, object]] = {message.name: {field.name: kind(field) for field in fields}}
    for field in fields:
        if field.message_type:
            shapes |= shape(field.message_type)
    return shapes


def kind(field: Any) -> tuple[object, ...]:
    oneof = field.containing_oneof.name if field.containing_oneof else None
    below = (
        (field.message_type.name, field.message_type.GetOptions().map_entry) if field.message_type else None
    )
    return field.number, field.type, field.label, oneof, below


def test_the_model_list_has_the_fields_of_the_servers_own_package() -> None:
    ours = server_protos.model_server_config("").DESCRIPTOR
    assert shape(ours) == shape(servers_own.ModelServerConfig.DESCRIPTOR)


def test_only_what_no_stock_server_accepts_is_left_out_of_the_model_list() -> None:
    theirs = {"ModelConfig": servers_own.ModelConfig, "ModelServerConfig": servers_own.ModelServerConfig}
    ours = shape(server_protos.model_server_config("").DESCRIPTOR)
    missing = {name: set(m.DESCRIPTOR.fields_by_name) - set(ours[name]) for name, m in theirs.items()}
    assert missing == LEFT_OUT


def test_the_same_text_is_the_same_bytes_to_the_servers_own_package() -> None:
    text = (
        f"model_config_list {{ config {{ {MODEL} model_version_policy {{ specific {{ versions: [3, 4] }} }} "
        'version_labels { key: "stable" value: 3 } } config { name: "n" model_version_policy { latest { '
        "num_versions: 2 } } } config { model_version_policy { all {} } } }"
    )
    theirs = text_format.Parse(text, servers_own.ModelServerConfig())
    assert server_protos.model_server_config(text).SerializeToString() == theirs.SerializeToString()
