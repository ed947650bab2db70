"""Clients that ask without a pause and count every answer."""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc

from tests.envoy.harness import PATIENCE_S, Site, call_grpc, wait_for


@dataclass
class Load:
    """Clients that ask without a pause, and what they got."""

    served: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def total(self) -> int:
        with self._lock:
            return sum(self.served.values()) + len(self.failures)

    def more(self, count: int, patience_s: float = 60) -> None:
        """Waits until `count` more requests were answered."""
        wanted = self.total + count
        wait_for(f"{count} more requests", lambda: self.total >= wanted, patience_s)

    def note(self, served_by: str | None, failure: str | None, took_s: float) -> None:
        with self._lock:
            self.slowest_s = max(self.slowest_s, took_s)
            if failure is None:
                self.served[served_by or "nobody"] += 1
            else:
                self.failures.append(failure)

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        self._stop.set()


def _rest_client(made: Site, load: Load, path: str, body: bytes, headers: Mapping[str, str]) -> None:
    def connect() -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", made.plan.spec.rest_port, timeout=PATIENCE_S)

    connection = connect()
    while not load.stopped:
        started = time.monotonic()
        try:
            connection.request("POST", path, body=body, headers=dict(headers))
            response = connection.getresponse()
            text = response.read()
            served_by = response.headers.get("x-served-by")
            failure = None
            if response.status != 200:
                failure = f"{response.status} {text!r}"
            elif json.loads(text)["served_by"] != served_by:
                failure = f"header {served_by}, body {text!r}"
        except (OSError, http.client.HTTPException) as error:
            served_by, failure = None, repr(error)
            connection.close()
            connection = connect()
        load.note(served_by, failure, time.monotonic() - started)
    connection.close()


def _grpc_client(made: Site, load: Load, message: bytes, metadata: Sequence[tuple[str, str]]) -> None:
    with made.channel() as channel:
        while not load.stopped:
            started = time.monotonic()
            served_by, failure = None, None
            try:
                answer, served_by = call_grpc(channel, message=message, metadata=metadata)
                if json.loads(answer)["served_by"] != served_by:
                    failure = f"header {served_by}, body {answer!r}"
            except grpc.RpcError as error:
                failure = repr(error)
            load.note(served_by, failure, time.monotonic() - started)


@contextmanager
def load_on(
    made: Site,
    protocol: str,
    *,
    clients: int = 8,
    body: bytes = b"{}",
    path: str = "/v1/models/resnet:predict",
    headers: Mapping[str, str] | None = None,
    metadata: Sequence[tuple[str, str]] = (),
) -> Iterator[Load]:
    """`clients` that ask until the block ends: `rest` at `path` with `headers`, or `grpc` with `metadata`."""
    load = Load()

    def client() -> None:
        if protocol == "rest":
            _rest_client(made, load, path, body, headers or {})
        else:
            _grpc_client(made, load, body, metadata)

    threads = [threading.Thread(target=client, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.stop()
        for thread in threads:
            thread.join(PATIENCE_S)
