"""What an edit of a stack file is, and what the stack that is edited is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

from tests.integration.containers import Shows

LANES = ("one", "two", "three")
"""The pools. Pool i has GPU i, so edits of different pools can be told apart in one `up`."""
PROXY = "here-envoy"
REMOVED = object()
"""A key that is taken out of the stack file."""
FRONT = "here-envoy-proxy"
FACTS = {"here-envoy-config-publisher": "replaced"}
"""What a change of what is known of the node does."""
ACCEPTANCE = "here-envoy-acceptance"
FILES = {"here-envoy-config-publisher": "replaced", ACCEPTANCE: "replaced"}
"""What a change of Envoy's files does."""
FIRST = "here-first-config-publisher"
"""Of the first pool, once it is renamed."""


@dataclass(frozen=True)
class Edit:
    """`values` by their place in the stack file; what it `does` to which Docker resource, in Pulumi's words.

    `shows` is the evidence, by container (its name without the stack's).
    """

    name: str
    values: Mapping[str, object]
    does: Mapping[str, str]
    shows: Mapping[str, Shows] = field(default_factory=dict)


@dataclass(frozen=True)
class Ground:
    """What the edits need to know of this run: its stack, a folder of models, the engine, what is free."""

    stack: str
    models: Path
    docker_host: str
    subnet: IPv4Network
    ports: Sequence[int]


@dataclass(frozen=True)
class PoolEdit:
    """An edit that touches the containers of one pool alone; places are below the pool."""

    values: Mapping[str, object]
    shows: Shows
    does: str = "replaced"
    """What is done to the server; empty: nothing."""
    publishes: bool = False
    """Whether the text of a file is another one."""
    routes: bool = False
    """Whether Envoy's files are others."""
    of_the_node: bool = False
    """Whether it is a fact of the node, which the labels of Envoy's publisher say."""

    def on(self, lane: int) -> Edit:
        """The edit of one of the pools; `gpu.` stands for the pool's GPU."""
        below = {f"pools[{lane}].{place}": value for place, value in self.values.items()}
        values = {
            place.replace(f"pools[{lane}].gpu.", f"nodes[0].gpus[{lane}]."): value
            for place, value in below.items()
        }
        name = ", ".join(self.values)
        publishes = {publisher(lane): "replaced"} if self.publishes else {}
        does = rolled(lane) if self.does == "replaced" else {server(lane): self.does} if self.does else {}
        files = {**(FILES if self.routes else {}), **(FACTS if self.of_the_node else {})}
        return Edit(name, values, {**does, **publishes, **files}, {instance(lane): self.shows})


def instance(gpu: int) -> str:
    """The container on a GPU."""
    return f"here-gpu{gpu}"


def rolled(*gpus: int) -> dict[str, str]:
    """Servers that are replaced, each drained before; then Envoy's endpoints are looked at."""
    containers = [named(gpu) for gpu in gpus for named in (server, drain)]
    return dict.fromkeys([*containers, ACCEPTANCE], "replaced")


def drain(gpu: int) -> str:
    """What drains the server on a GPU."""
    return f"{instance(gpu)}-drain"


def publisher(lane: int) -> str:
    """What publishes the files of a pool."""
    return f"here-{LANES[lane]}-config-publisher"


def server(gpu: int) -> str:
    """The server on a GPU."""
    return f"{instance(gpu)}-server"


def resource_of(container: str) -> str:
    """The Pulumi resource of a container."""
    if container.endswith("-publisher"):
        return f"{container.removesuffix('-publisher')}-config-publisher"
    if container.endswith(("-acceptance", "-drain")):
        return container
    return FRONT if container == PROXY else f"{container}-server"
