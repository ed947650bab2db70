"""The server's configuration messages with their real names and numbers, read as text format.

Built here: no package registry has the server's session_bundle_config.proto and monitoring_config.proto, and
the package that has model_server_config.proto needs all of TensorFlow; a test compares with that package.
The parser and the wrapper messages are protobuf's own. Fields that no stock server accepts (`logging_config`,
`model_type`, `custom_model_config`) are left out, so that they are refused here too.
"""

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2
from google.protobuf.message import Message

_Field = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "tensorflow.serving"

# message: {field: (number, type)}; a type with a dot in front is a message.
_BATCHING: dict[str, tuple[int, str]] = {
    "max_batch_size": (1, ".google.protobuf.Int64Value"),
    "batch_timeout_micros": (2, ".google.protobuf.Int64Value"),
    "max_enqueued_batches": (3, ".google.protobuf.Int64Value"),
    "num_batch_threads": (4, ".google.protobuf.Int64Value"),
    "thread_pool_name": (5, ".google.protobuf.StringValue"),
    "allowed_batch_sizes": (6, "repeated int64"),
    "pad_variable_length_inputs": (7, "bool"),
    "enable_large_batch_splitting": (8, ".google.protobuf.BoolValue"),
    "max_execution_batch_size": (9, ".google.protobuf.Int64Value"),
}
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "BatchingParameters": _BATCHING,
    "PrometheusConfig": {"enable": (1, "bool"), "path": (2, "string")},
    "MonitoringConfig": {"prometheus_config": (1, ".PrometheusConfig")},
    "Latest": {"num_versions": (1, "uint32")},
    "All": {},
    "Specific": {"versions": (1, "repeated int64")},
    "ServableVersionPolicy": {
        "latest": (100, ".Latest"),
        "all": (101, ".All"),
        "specific": (102, ".Specific"),
    },
    "ModelConfig": {
        "name": (1, "string"),
        "base_path": (2, "string"),
        "model_platform": (4, "string"),
        "model_version_policy": (7, ".ServableVersionPolicy"),
        "version_labels": (8, "repeated .ModelConfig.VersionLabelsEntry"),
    },
    "ModelConfigList": {"config": (1, "repeated .ModelConfig")},
    "ModelServerConfig": {"model_config_list": (1, ".ModelConfigList")},
}
_ONEOFS = {"ServableVersionPolicy": "policy_choice", "ModelServerConfig": "config"}


def batching_parameters(text: str) -> Message:
    """Raises `text_format.ParseError` for what the server would refuse to parse, as do the others."""
    return _parsed("BatchingParameters", text)


def model_server_config(text: str) -> Message:
    """`models.config`."""
    return _parsed("ModelServerConfig", text)


def monitoring_config(text: str) -> Message:
    """`monitoring.config`."""
    return _parsed("MonitoringConfig", text)


def values(message: Message) -> dict[str, object]:
    """Fields that are set, wrappers unwrapped, maps as dicts."""
    return {field.name: _plain(value) for field, value in message.ListFields()}


def _plain(value: Any) -> object:
    if isinstance(value, Message):
        wrapper = value.DESCRIPTOR.file.name == wrappers_pb2.DESCRIPTOR.name
        return getattr(value, "value") if wrapper else values(value)  # noqa: B009 - a field of generated classes
    if isinstance(value, str | int | float | bool):
        return value
    return dict(value) if hasattr(value, "items") else [_plain(item) for item in value]


def _parsed(name: str, text: str) -> Message:
    message = _classes()[f"{_PACKAGE}.{name}"]()
    text_format.Parse(text, message)
    return message


@cache
def _classes() -> dict[str, type[Message]]:
    file = descriptor_pb2.FileDescriptorProto(
        name="server_config.proto",
        package=_PACKAGE,
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if name in _ONEOFS:
            message.oneof_decl.add(name=_ONEOFS[name])
        for field_name, (number, declared) in fields.items():
            kind = declared.removeprefix("repeated ")
            label = _Field.LABEL_OPTIONAL if kind == declared else _Field.LABEL_REPEATED
            field = message.field.add(name=field_name, number=number, label=label)
            if name in _ONEOFS:
                field.oneof_index = 0
            if kind.startswith("."):
                field.type = _Field.TYPE_MESSAGE
                field.type_name = kind if kind.startswith(".google.") else f".{_PACKAGE}{kind}"
            else:
                field.type = _Field.Type.Value(f"TYPE_{kind.upper()}")
    _add_label_map(file)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClassesForFiles([file.name], pool)


def _add_label_map(file: descriptor_pb2.FileDescriptorProto) -> None:
    (model,) = [message for message in file.message_type if message.name == "ModelConfig"]
    entry = model.nested_type.add(name="VersionLabelsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
    entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_INT64)
