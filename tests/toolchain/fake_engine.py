"""An engine for the language host: takes log messages, and answers a program that registers its stack."""

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, resource_pb2, resource_pb2_grpc


@dataclass(kw_only=True)
class FakeEngine:
    """What the program did, and where it reaches us."""

    address: str = ""
    logged: list[tuple[int, str]] = field(default_factory=list)
    outputs: dict[str, object] = field(default_factory=dict)

    def forget(self) -> None:
        """Start the next test with nothing logged and nothing exported."""
        self.logged.clear()
        self.outputs.clear()

    def errors(self) -> list[str]:
        """The messages that a user would see as errors."""
        return [message for severity, message in self.logged if severity == engine_pb2.ERROR]


@contextmanager
def fake_engine() -> Iterator[FakeEngine]:
    """Serve both halves of an engine, the log and the resource monitor, on one port."""
    engine = FakeEngine()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    engine_pb2_grpc.add_EngineServicer_to_server(_Log(engine), server)
    resource_pb2_grpc.add_ResourceMonitorServicer_to_server(_Monitor(engine), server)
    engine.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield engine
    finally:
        server.stop(grace=None).wait()


class _Log(engine_pb2_grpc.EngineServicer):
    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine

    def Log(self, request: engine_pb2.LogRequest, _context: grpc.ServicerContext) -> empty_pb2.Empty:  # noqa: N802
        self._engine.logged.append((request.severity, request.message))
        return empty_pb2.Empty()


class _Monitor(resource_pb2_grpc.ResourceMonitorServicer):
    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine

    def SupportsFeature(  # noqa: N802
        self, _request: resource_pb2.SupportsFeatureRequest, _context: grpc.ServicerContext
    ) -> resource_pb2.SupportsFeatureResponse:
        return resource_pb2.SupportsFeatureResponse(hasSupport=False)

    def GetDeploymentInfo(  # noqa: N802
        self, _request: empty_pb2.Empty, context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "the SDK then uses what the language host told it")
        raise AssertionError

    def RegisterResource(  # noqa: N802
        self, request: resource_pb2.RegisterResourceRequest, _context: grpc.ServicerContext
    ) -> resource_pb2.RegisterResourceResponse:
        return resource_pb2.RegisterResourceResponse(urn=f"urn:pulumi:s::p::{request.type}::{request.name}")

    def RegisterResourceOutputs(  # noqa: N802
        self, request: resource_pb2.RegisterResourceOutputsRequest, _context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        self._engine.outputs.update(request.outputs.items())
        return empty_pb2.Empty()

    def SignalAndWaitForShutdown(  # noqa: N802
        self, _request: empty_pb2.Empty, _context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        return empty_pb2.Empty()
