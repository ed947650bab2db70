"""A client at a constant rate: `python -m drills.load rest|grpc --at HOST:PORT --rate R …`.

Runs until SIGTERM, then writes one line for every request that it sent: when it was due, when it was sent and
how long it took, in seconds (the machine's monotonic clock), how it ended, who served it, and which version
of the model did. A process of its own, so that two share no interpreter lock. Nothing is retried: counted is
what a client would see.
"""

import argparse
import http.client
import json
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc

from drills.records import ANSWERED, Request
from tests.integration.predict import PREDICT, message

_REQUESTS_PER_CONNECTION = 100
_TIMEOUT_S = 20.0
_FLOAT = 1

Ask = Callable[[], tuple[str, str, str]]
"""One request: how it ended, who served it, which version."""


class RestClient:
    """Keeps a connection for a hundred requests, then makes a new one: each way loses some in its own."""

    def __init__(self, at: str, model: str, headers: dict[str, str], ca: bytes | None) -> None:
        self._at = at
        self._tls = ssl.create_default_context(cadata=ca.decode()) if ca else None
        self._path = f"/v1/models/{model}:predict"
        self._headers = headers
        self._connection: http.client.HTTPConnection | None = None
        self._left = 0

    def __call__(self) -> tuple[str, str, str]:
        """Send one request."""
        if self._connection is None or self._left == 0:
            self._close()
            self._connection = self._connect()
            self._left = _REQUESTS_PER_CONNECTION
        self._left -= 1
        try:
            self._connection.request("POST", self._path, b'{"instances": [1.0]}', self._headers)
            response = self._connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._close()
            return type(error).__name__, "", ""
        if response.will_close:
            self._close()
        outcome = str(response.status)
        if response.status == http.client.OK:
            outcome = ANSWERED if json.loads(body).get("predictions") == [2.5] else "wrong answer"
        served_by = response.headers.get("x-served-by", "")
        return outcome, served_by, _version(response.headers.get("x-simulator-model", ""))

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._at, timeout=_TIMEOUT_S)
        return http.client.HTTPSConnection(self._at, timeout=_TIMEOUT_S, context=self._tls)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class GrpcClient:
    """Keeps one channel, as clients do; the connection below it is the library's to make again."""

    def __init__(self, at: str, model: str, headers: dict[str, str], ca: bytes | None) -> None:
        request = message("PredictRequest")()
        request.model_spec.name = model
        tensor = request.inputs["x"]
        tensor.dtype = _FLOAT
        tensor.tensor_shape.dim.add().size = 1
        tensor.float_val.append(1.0)
        self._request = request
        self._metadata = tuple(headers.items())
        # Without a pool of its own every client of this process would share one connection.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 1000)]
        channel = (
            grpc.secure_channel(at, grpc.ssl_channel_credentials(ca), options=options)
            if ca
            else grpc.insecure_channel(at, options=options)
        )
        self._predict = channel.unary_unary(
            PREDICT,
            request_serializer=lambda sent: sent.SerializeToString(),
            response_deserializer=message("PredictResponse").FromString,
        )

    def __call__(self) -> tuple[str, str, str]:
        """Send one request."""
        try:
            response, call = self._predict.with_call(
                self._request, timeout=_TIMEOUT_S, metadata=self._metadata
            )
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"[:120].replace(",", ";"), "", ""
        answered = response.outputs["y"].float_val[0] == 2.5
        headers = {key: str(value) for key, value in (*call.initial_metadata(), *call.trailing_metadata())}
        return (
            ANSWERED if answered else "wrong answer",
            headers.get("x-served-by", ""),
            _version(headers.get("x-simulator-model", "")),
        )


def _version(model: str) -> str:
    return model.rpartition("/")[2]


def run(clients: Sequence[Ask], rate: float, stop: threading.Event, at_least: int) -> list[Request]:
    """Ask at a rate that the clients share, until told to stop and no sooner than after `at_least` requests.

    A client that had to wait for an answer then sends what has become due at once: none is left out because
    an earlier one took long.
    """
    sent: list[list[Request]] = [[] for _ in clients]

    def done() -> bool:
        return stop.is_set() and sum(map(len, sent)) >= at_least

    def work(ask: Ask, kept: list[Request], first: float) -> None:
        due = first
        while not done():
            if (early := due - time.monotonic()) > 0:
                time.sleep(early)
            start = time.monotonic()
            outcome, served_by, version = ask()
            kept.append(
                Request(
                    due_s=due,
                    start_s=start,
                    duration_s=time.monotonic() - start,
                    outcome=outcome,
                    served_by=served_by,
                    version=version,
                )
            )
            due += len(clients) / rate

    begin = time.monotonic()
    threads = [
        threading.Thread(target=work, args=(ask, kept, begin + number / rate))
        for number, (ask, kept) in enumerate(zip(clients, sent, strict=True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted((request for kept in sent for request in kept), key=lambda request: request.start_s)


def main(arguments: Sequence[str]) -> None:
    """The program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("protocol", choices=("rest", "grpc"))
    parser.add_argument("--at", required=True, metavar="HOST:PORT")
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--at-least", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="half_plus_two")
    parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--ca", type=Path, help="certificates to trust: ask over TLS")
    chosen = parser.parse_args(arguments)
    headers = dict(header.split("=", 1) for header in chosen.header)
    ca = chosen.ca.read_bytes() if chosen.ca else None
    client = RestClient if chosen.protocol == "rest" else GrpcClient
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    clients = [client(chosen.at, chosen.model, headers, ca) for _ in range(chosen.clients)]
    requests = run(clients, chosen.rate, stop, chosen.at_least)
    chosen.out.write_text("".join(f"{request.line()}\n" for request in requests))


if __name__ == "__main__":
    socket.setdefaulttimeout(_TIMEOUT_S)
    main(sys.argv[1:])
