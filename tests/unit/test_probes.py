"""The health check, run for real by bash against servers on the loopback."""

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from components.probes import http_probe, model_paths

# The image's bash is asked for by its path; what a test waits for a mute server is shortened.
PATIENCE = "read -r -t 5 "


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        seen(self.server).append(self.path)
        status = {"/ok": 200, "/also-ok": 200, "/loading": 503}.get(self.path, 404)
        body = b"HTTP/1.1 200 OK is what the body says"
        self.send_response(status, "OK" if status == 200 else "after 2001 ms")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by the base class
        pass


class Server(ThreadingHTTPServer):
    seen: list[str]


def seen(server: object) -> list[str]:
    assert isinstance(server, Server)
    return server.seen


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    made.seen = []
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def run(port: int, *paths: str, patience_s: int = 5) -> subprocess.CompletedProcess[str]:
    kind, *command = http_probe(port, paths)
    assert kind == "CMD", "the engine would run the command by a shell"
    script = command[2]
    assert script.count(PATIENCE) == 1
    command[2] = script.replace(PATIENCE, f"read -r -t {patience_s} ")
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)


@contextmanager
def mute() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_every_path_must_answer_200(server: Server) -> None:
    done = run(server.server_port, "/ok", "/also-ok")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert server.seen == ["/ok", "/also-ok"]


@pytest.mark.parametrize(("path", "status"), [("/nowhere", "404"), ("/loading", "503")])
def test_another_status_fails_and_is_told_with_its_path(server: Server, path: str, status: str) -> None:
    done = run(server.server_port, "/ok", path, "/also-ok")
    assert done.returncode != 0
    assert done.stdout.startswith(f"{path}: HTTP/1.1 {status} ")
    assert server.seen == ["/ok", path]


def test_a_closed_port_fails_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert run(port, "/ok").returncode != 0


def test_a_server_that_never_answers_fails_within_the_bound() -> None:
    with mute() as port:
        started = time.monotonic()
        done = run(port, "/ok", patience_s=1)
        assert done.returncode != 0
        assert time.monotonic() - started < 10


def test_a_path_is_sent_as_it_is_and_no_part_of_the_script(server: Server) -> None:
    done = run(server.server_port, "/$(true)")
    assert done.returncode != 0
    assert server.seen == ["/$(true)"]


def test_a_loaded_model_is_asked_for_its_metadata() -> None:
    assert model_paths(["bert", "tagger"]) == ("/v1/models/bert/metadata", "/v1/models/tagger/metadata")
