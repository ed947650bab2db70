"""The messages of simulator/proto as plain dicts, and calls of the server's gRPC services with them."""

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import Message
from grpc_tools import protoc

from images.simulator import SOURCE

PROTOS = SOURCE / "proto"
PREDICTION = "tensorflow.serving.PredictionService"
MODEL = "tensorflow.serving.ModelService"
PROFILER = "tensorflow.ProfilerService"


@dataclass(frozen=True)
class Reply:
    """A status code's name with its message, or OK with the response; metadata that came with either."""

    code: str
    message: str
    response: dict[str, Any]
    metadata: dict[str, str]


def call(target: str, service: str, method: str, request: dict[str, Any], timeout_s: float = 10) -> Reply:
    """Call a method on a channel of its own; a dict stands for each message, in protobuf's JSON form."""
    described = _pool().FindServiceByName(service).methods_by_name[method]
    answer_class = message_factory.GetMessageClass(described.output_type)
    with grpc.insecure_channel(target) as channel:
        stub = channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=lambda sent: sent.SerializeToString(),
            response_deserializer=answer_class.FromString,
        )
        sent = message(described.input_type.full_name, request)
        try:
            answer, done = stub.with_call(sent, timeout=timeout_s)
        except grpc.RpcError as error:
            if not isinstance(error, grpc.Call):
                raise
            # As the real server does it, an error is trailers alone: a proxy can try such a call again.
            return Reply(error.code().name, error.details() or "", {}, _headers(error.trailing_metadata()))
    shown = json_format.MessageToDict(
        answer,
        preserving_proto_field_name=True,
        descriptor_pool=_pool(),
        always_print_fields_with_no_presence=True,
    )
    return Reply("OK", "", shown, _headers(done.initial_metadata()))


def message(name: str, content: dict[str, Any]) -> Message:
    """A message of that full name."""
    made = message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))()
    return json_format.ParseDict(content, made, descriptor_pool=_pool())


def floats(*values: float, shape: tuple[int, ...] | None = None) -> dict[str, Any]:
    """A tensor of floats."""
    sizes = (len(values),) if shape is None else shape
    return {
        "dtype": "DT_FLOAT",
        "tensor_shape": {"dim": [{"size": size} for size in sizes]},
        "float_val": list(values),
    }


def _headers(metadata: Any) -> dict[str, str]:
    return {key: str(value) for key, value in metadata or ()}


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "protos.bin"
        own = str(Path(protoc.__file__).parent / "_proto")
        arguments = [f"-I{PROTOS}", f"-I{own}", f"--descriptor_set_out={out}", "--include_imports"]
        assert protoc.main(["protoc", *arguments, *sorted(file.name for file in PROTOS.glob("*.proto"))]) == 0
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool
