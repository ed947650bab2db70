"""A server that looks like TensorFlow Serving to Envoy and misbehaves on demand: a process of its own.

`POST /control` changes how it behaves, `GET /seen` lists the requests that it was given. It listens where the
Plan puts an instance: REST on 8501, gRPC on 8500 of its address, unless other ports are named (gRPC, REST).
"""

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import grpc

from components.monitoring import METRICS_PATH
from components.server_spec import GRPC_PORT, REST_PORT

POISON = b"poison"
"""A request with this in it is answered as by a broken instance, by every instance."""

_REFUSALS = {
    "full": (503, grpc.StatusCode.UNAVAILABLE, "The batch scheduling queue is full"),
    "broken": (500, grpc.StatusCode.INTERNAL, "Failed to launch a kernel: CUDA_ERROR_ILLEGAL_ADDRESS"),
    "refuse": (400, grpc.StatusCode.INVALID_ARGUMENT, "input size does not match signature"),
}
_STATUS = re.compile(r"/v1/models/([^/:]+)(/versions/\d+|/labels/\w+)?")


@dataclass
class Behaviour:
    """What the server does. `states`: by model, AVAILABLE where not given."""

    name: str
    delay_s: float = 0.0
    answer: str = "ok"
    """ok, full (503), mostly full (9 of 10), broken (500), refuse (400), hang (no answer), reset (connection
    closed)."""
    forging: bool = False
    """Over gRPC; over REST it always does."""
    states: dict[str, list[str]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)

    def refusal(self, body: bytes) -> tuple[int, grpc.StatusCode, str] | None:
        if self.answer == "mostly full" and len(self.seen) % 10:
            return _REFUSALS["full"]
        return _REFUSALS.get("broken" if POISON in body else self.answer)

    def status_page(self, model: str) -> str:
        versions = self.states.get(model, ["AVAILABLE"])
        status = [
            {
                "version": str(number),
                "state": state,
                "status": {
                    "error_code": "OK" if state == "AVAILABLE" else "UNAVAILABLE",
                    "error_message": "",
                },
            }
            for number, state in enumerate(versions, start=1)
        ]
        return json.dumps({"model_version_status": status}, indent=1)


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


async def _read(reader: asyncio.StreamReader) -> Request | None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    body = b""
    if headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    elif "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    return Request(method, target, headers, body)


async def _forever() -> None:
    await asyncio.Event().wait()


def _http(behaviour: Behaviour) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def answer(request: Request, writer: asyncio.StreamWriter) -> tuple[int, str] | None:
        path = request.target.partition("?")[0]
        if path == "/control":
            for key, value in json.loads(request.body).items():
                setattr(behaviour, key, value)
            return 200, "{}"
        if path == "/seen":
            return 200, json.dumps(behaviour.seen)
        if path == METRICS_PATH:
            return 200, f'up{{instance="{behaviour.name}"}} 1\n'
        if (match := _STATUS.fullmatch(path)) and request.headers.get("user-agent") == "Envoy/HC":
            return 200, behaviour.status_page(match[1])
        behaviour.seen.append(f"{request.method} {request.target} {json.dumps(request.headers)}")
        if request.method == "GET":
            return 200, behaviour.status_page(match[1] if match else "")
        await asyncio.sleep(behaviour.delay_s)
        if refusal := behaviour.refusal(request.body):
            return refusal[0], json.dumps({"error": refusal[2]})
        if behaviour.answer == "hang":
            await _forever()
        if behaviour.answer == "reset":
            writer.transport.abort()
            return None
        return 200, json.dumps(
            {"served_by": behaviour.name, "bytes": len(request.body), "path": request.target}
        )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read(reader)) is not None:
                if (reply := await answer(request, writer)) is None:
                    return
                status, text = reply
                writer.write(
                    f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nx-served-by: forged\r\n"
                    f"content-length: {len(text)}\r\n\r\n{text}".encode()
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    return serve


class _AnyMethod(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """Answers every method with the server's name, whatever the message."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        method = handler_call_details.method

        async def call(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            behaviour = self.behaviour
            behaviour.seen.append(f"{method} {request[:4096].hex()}")
            await asyncio.sleep(behaviour.delay_s)
            if refusal := behaviour.refusal(request):
                await context.abort(*refusal[1:])
            if behaviour.answer == "hang":
                await _forever()
            if behaviour.forging:
                # Only on demand: it begins the answer apart from the message, and a call whose answer has
                # begun cannot be tried again. The real server sends both at once.
                await context.send_initial_metadata((("x-served-by", "forged"),))
            return json.dumps({"served_by": behaviour.name, "bytes": len(request)}).encode()

        return grpc.unary_unary_rpc_method_handler(call)


async def _main(name: str, address: str, grpc_port: int = GRPC_PORT, rest_port: int = REST_PORT) -> None:
    behaviour = Behaviour(name)
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((_AnyMethod(behaviour),))
    if server.add_insecure_port(f"{address}:{grpc_port}") == 0:
        raise SystemExit(f"{address}:{grpc_port} is taken")
    await server.start()
    rest = await asyncio.start_server(_http(behaviour), address, rest_port)
    async with rest:
        await rest.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
