"""A simulator process on loopback, as tests start and ask it."""

import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.simulator import wire

GPU = "GPU-00000000-1111-2222-3333-444444444444"
PATIENCE_S = 20.0


@dataclass(frozen=True)
class HttpReply:
    """What came back over REST; `json` is empty where the body is none."""

    status: int
    json: dict[str, Any]
    headers: dict[str, str]
    text: str


def free_port() -> int:
    """A port that nobody has right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_for(what: str, condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Fail unless a condition comes true in time."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {patience_s} s"
        time.sleep(0.01)


def publish(base: Path, version: int | str, files: Mapping[str, str | bytes] | None = None) -> Path:
    """Make a version directory that appears whole; `files` come on top of saved_model.pb or in its place."""
    unfinished = base / f"{version}.unfinished"
    for name, content in {"saved_model.pb": b"model", **(files or {})}.items():
        path = unfinished / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return unfinished.rename(base / str(version))


def models_config(*models: str) -> str:
    """The text of a models.config; each model is what stands between the braces."""
    return "model_config_list {\n" + "".join(f"  config {{ {model} }}\n" for model in models) + "}\n"


def model(name: str, base: Path, more: str = "") -> str:
    """One model of a models.config."""
    return f'name: "{name}" base_path: "{base}" model_platform: "tensorflow" {more}'


class Server:
    """One process; `flags` come after those for its two ports, and so win."""

    def __init__(
        self, binary: Path, folder: Path, flags: list[str], env: Mapping[str, str], ports: tuple[int, int]
    ) -> None:
        self.grpc_port, self.rest_port = ports
        self.log = folder / f"server-{self.grpc_port}.log"
        environment = {
            "PATH": os.environ["PATH"],
            "NVIDIA_VISIBLE_DEVICES": GPU,
            "SIM_BIND_ADDRESS": "127.0.0.1",
            **env,
        }
        command = [str(binary), f"--port={self.grpc_port}", f"--rest_api_port={self.rest_port}", *flags]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def printed(self) -> str:
        return self.log.read_text()

    def ready(self) -> "Server":
        """Wait until REST answers."""
        wait_for("REST", lambda: self.is_open(self.rest_port) or self.process.poll() is not None)
        assert self.process.poll() is None, self.printed()
        return self

    def exit_code(self) -> int:
        return self.process.wait(timeout=PATIENCE_S)

    @staticmethod
    def is_open(port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def rest(
        self, path: str, body: Any = None, method: str | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpReply:
        """GET, or POST where there is a body: bytes as they are, anything else as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.rest_port, timeout=PATIENCE_S)
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body)
        try:
            connection.request(method or ("GET" if body is None else "POST"), path, sent, dict(headers or {}))
            reply = connection.getresponse()
            text = reply.read().decode()
        finally:
            connection.close()
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = {}
        lower = {name.lower(): value for name, value in reply.getheaders()}
        return HttpReply(reply.status, parsed, lower, text)

    def grpc(self, service: str, method: str, request: dict[str, Any], timeout_s: float = 10) -> wire.Reply:
        return wire.call(f"127.0.0.1:{self.grpc_port}", service, method, request, timeout_s)

    def states(self, name: str) -> dict[int, str]:
        """State by version, as the status page has it; empty where the model is not known."""
        listed = self.rest(f"/v1/models/{name}").json.get("model_version_status", [])
        return {int(one["version"]): one["state"] for one in listed}

    def wait_states(self, name: str, expected: dict[int, str]) -> None:
        wait_for(f"{name} in {expected}", lambda: self.states(name) == expected)
