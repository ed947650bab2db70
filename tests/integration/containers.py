"""What a running container really has: its process, its files, what the engine holds of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from tests.integration.docker_cli import DockerCli


class Container:
    """One container, read from outside: neither a shell nor a tool is needed in it."""

    def __init__(self, engine: DockerCli, name: str) -> None:
        self.name = name
        self._inspection = cast("dict[str, Any]", engine.inspect(name))

    def arguments(self) -> list[str]:
        """The command line of its server, as the kernel has it."""
        return self._proc("cmdline").split("\0")

    def environment(self) -> list[str]:
        """The environment of its server, as the kernel has it."""
        return self._proc("environ").split("\0")

    def text(self, path: str) -> str:
        """A file as its server sees it."""
        file = Path(f"/proc/{self._server()}/root{path}")
        return file.read_text() if file.exists() else ""

    def engine_says(self, path: str) -> object:
        """A value of the engine's own description: `HostConfig.Memory`."""
        value: Any = self._inspection
        for key in path.split("."):
            value = value[key]
        return cast("object", value)

    def _proc(self, what: str) -> str:
        return Path(f"/proc/{self._server()}/{what}").read_text()

    def _server(self) -> int:
        """The child of process 1, which only hands signals on."""
        pid = self._inspection["State"]["Pid"]
        [server] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(server)


Shows = Callable[[Container], bool]
"""Whether a container has what an edit was to give it."""


def argument(*texts: str) -> Shows:
    """Arguments of the server's process, one after the other."""
    return lambda container: "\0".join(("", *texts, "")) in "\0".join(("", *container.arguments(), ""))


def variable(text: str) -> Shows:
    """`NAME=value` in the environment of the server's process."""
    return lambda container: text in container.environment()


def in_file(path: str, text: str) -> Shows:
    """Text in a file that the server sees."""
    return lambda container: text in container.text(path)


def in_named_file(flag: str, text: str) -> Shows:
    """Text in the file that a flag of the server's process names."""

    def shows(container: Container) -> bool:
        named = [word.partition("=")[2] for word in container.arguments() if word.startswith(f"--{flag}=")]
        return any(text in container.text(path) for path in named)

    return shows


def held(path: str, value: object) -> Shows:
    """A value in the engine's description."""
    return lambda container: container.engine_says(path) == value


def labelled(name: str, value: str) -> Shows:
    """One of our labels."""
    return lambda container: (
        cast("dict[str, str]", container.engine_says("Config.Labels")).get(f"tf-serving.{name}") == value
    )


def published(port: int, address: str) -> Shows:
    """A port that the engine publishes for the container, whatever it is inside."""
    wanted = [{"HostIp": address, "HostPort": str(port)}]
    return lambda container: (
        wanted in cast("dict[str, object]", container.engine_says("HostConfig.PortBindings")).values()
    )


def mounted(source: str) -> Shows:
    """A folder of the node, mounted read-only."""
    return lambda container: (
        (source, False)
        in {
            (mount["Source"], mount["RW"])
            for mount in cast("list[dict[str, Any]]", container.engine_says("Mounts"))
        }
    )


def on_network(name: str, address: str) -> Shows:
    """A network, and the container's address there."""
    return lambda container: (
        cast("dict[str, Any]", container.engine_says("NetworkSettings.Networks"))
        .get(name, {})
        .get("IPAddress")
        == address
    )


def lacks(shown: Shows) -> Shows:
    """The contrary."""
    return lambda container: not shown(container)


def each(*shown: Shows) -> Shows:
    """All of them."""
    return lambda container: all(one(container) for one in shown)
