"""Batching parameters as the server reads them: text format of session_bundle_config.proto."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2

_Field = descriptor_pb2.FieldDescriptorProto
# Field: number, and what it holds. What is a wrapper message is written `{ value: 32 }`, and no other.
_FIELDS: dict[str, tuple[int, Any]] = {
    "max_batch_size": (1, "Int64Value"),
    "batch_timeout_micros": (2, "Int64Value"),
    "max_enqueued_batches": (3, "Int64Value"),
    "num_batch_threads": (4, "Int64Value"),
    "thread_pool_name": (5, "StringValue"),
    "allowed_batch_sizes": (6, _Field.TYPE_INT64),
    "pad_variable_length_inputs": (7, _Field.TYPE_BOOL),
    "enable_large_batch_splitting": (8, "BoolValue"),
    "max_execution_batch_size": (9, "Int64Value"),
}


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What a file says, with the server's values for what it leaves out; threads None: one for each CPU."""

    max_batch_size: int
    timeout_micros: int
    enqueued: int
    threads: int | None
    allowed: tuple[int, ...]
    splitting: bool
    execution_size: int | None


def parse(text: str) -> Parameters:
    """Raises ValueError, with line and column, for what the server refuses to read."""
    message = _message()()
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise ValueError(str(error)) from error

    def value(name: str, otherwise: Any) -> Any:
        return getattr(message, name).value if message.HasField(name) else otherwise

    return Parameters(
        max_batch_size=value("max_batch_size", 1000),
        timeout_micros=value("batch_timeout_micros", 0),
        enqueued=value("max_enqueued_batches", 10),
        threads=value("num_batch_threads", None),
        allowed=tuple(message.allowed_batch_sizes),
        splitting=value("enable_large_batch_splitting", False),
        execution_size=value("max_execution_batch_size", None),
    )


@cache
def _message() -> Any:
    name = "batching_parameters.proto"
    file = descriptor_pb2.FileDescriptorProto(
        name=name, package="tensorflow.serving", syntax="proto3", dependency=[wrappers_pb2.DESCRIPTOR.name]
    )
    message = file.message_type.add(name="BatchingParameters")
    for field_name, (number, kind) in _FIELDS.items():
        repeated = field_name == "allowed_batch_sizes"
        field = message.field.add(
            name=field_name, number=number, label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
        )
        if isinstance(kind, str):
            field.type, field.type_name = _Field.TYPE_MESSAGE, f".google.protobuf.{kind}"
        else:
            field.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClassesForFiles([name], pool)["tensorflow.serving.BatchingParameters"]
