"""Asks a deployed model for predictions, over REST and gRPC, as a client would."""

import http.client
import json
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

from tests.pulumi_project import CHECKOUT

MODEL = "half_plus_two"
PREDICT = "/tensorflow.serving.PredictionService/Predict"
_PROTOS = CHECKOUT / "simulator" / "proto"
_FLOAT = 1
# Each request is a connection of its own, and a port of the engine's proxy to a container is free again only
# after 60 s: of 28,232 ports, 8 clients use a third at this pace.
_PAUSE_S = 0.05


@dataclass(frozen=True)
class Answer:
    """What came back: the prediction for 1.0, who answered, and the GPU that it says it has."""

    status: int
    served_by: str
    gpu: str
    prediction: float | None


def rest(
    port: int,
    timeout_s: float = 40,
    *,
    model: str = MODEL,
    host: str = "127.0.0.1",
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One prediction over REST."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request(
            "POST", f"/v1/models/{model}:predict", json.dumps({"instances": [1.0]}), dict(headers or {})
        )
        response = connection.getresponse()
        body = json.loads(response.read() or b"{}")
    finally:
        connection.close()
    return Answer(
        status=response.status,
        served_by=response.headers.get("x-served-by", ""),
        gpu=response.headers.get("x-simulator-gpu", ""),
        prediction=body.get("predictions", [None])[0],
    )


def over_grpc(
    port: int, timeout_s: float = 40, *, version: int | None = None, headers: Mapping[str, str] | None = None
) -> Answer:
    """One prediction over gRPC, on a channel of its own; `version` goes into the message.

    Raises grpc.RpcError.
    """
    request = message("PredictRequest")()
    request.model_spec.name = MODEL
    if version is not None:
        request.model_spec.version.value = version
    tensor = request.inputs["x"]
    tensor.dtype = _FLOAT
    tensor.tensor_shape.dim.add().size = 1
    tensor.float_val.append(1.0)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        predict = channel.unary_unary(
            PREDICT,
            request_serializer=lambda sent: sent.SerializeToString(),
            response_deserializer=message("PredictResponse").FromString,
        )
        response, call = predict.with_call(
            request, timeout=timeout_s, metadata=tuple((headers or {}).items())
        )
    received = {key: str(value) for key, value in (*call.initial_metadata(), *call.trailing_metadata())}
    return Answer(
        status=200,
        served_by=received.get("x-served-by", ""),
        gpu=received.get("x-simulator-gpu", ""),
        prediction=response.outputs["y"].float_val[0],
    )


@cache
def message(name: str) -> Any:
    """A message class of `simulator/proto`."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"tensorflow.serving.{name}"))


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "protos.bin"
        include = str(Path(protoc.__file__).parent / "_proto")
        arguments = [f"-I{_PROTOS}", f"-I{include}", f"--descriptor_set_out={out}", "--include_imports"]
        assert protoc.main(["protoc", *arguments, "serving_api.proto"]) == 0
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


class Load:
    """Clients that keep asking, each one request at a time, and count how each ended."""

    def __init__(self, ask: Callable[[], Answer], clients: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self._ask = ask
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            try:
                answer = self._ask()
                outcome = "answered" if answer.prediction == 2.5 else f"status {answer.status}"
            except (OSError, http.client.HTTPException, grpc.RpcError) as error:
                outcome = repr(error)
            self.outcomes[outcome] += 1
