"""Builds the simulator once, and starts it as often as a test asks."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest

from images.simulator import simulator_binary
from tests.simulator.server import Server, free_port, publish


class Start(Protocol):
    """Starts a server; it is killed when the test ends."""

    def __call__(
        self, *flags: str, env: Mapping[str, str] | None = None, ports: tuple[int, int] | None = None
    ) -> Server: ...


@pytest.fixture(scope="session")
def binary() -> Path:
    return simulator_binary()


@pytest.fixture
def start(binary: Path, tmp_path: Path) -> Iterator[Start]:
    running: list[Server] = []

    def started(
        *flags: str, env: Mapping[str, str] | None = None, ports: tuple[int, int] | None = None
    ) -> Server:
        chosen = ports or (free_port(), free_port())
        running.append(Server(binary, tmp_path, list(flags), env or {}, chosen))
        return running[-1]

    yield started
    for server in running:
        server.stop()


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """The base path of a model with version 1."""
    base = tmp_path / "models" / "half"
    base.mkdir(parents=True)
    publish(base, 1)
    return base


@pytest.fixture
def server(start: Start, half: Path) -> Server:
    """A plain server with the model `half`."""
    return start("--model_name=half", f"--model_base_path={half}").ready()
