"""A mock Pulumi engine: answers as the real one would, and keeps inputs, options and component outputs.

It does not know provider defaults, replaces nothing and refuses no input: what depends on that is for the
preview and integration tiers. It refuses what must never happen here: a provider call, a name used twice
for one type, a resource that falls back to a default provider.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from google.protobuf import empty_pb2
from pulumi.runtime import rpc
from pulumi.runtime.mocks import MockCallArgs, MockMonitor, MockResourceArgs, Mocks
from pulumi.runtime.proto import resource_pb2

STACK_TYPE = "pulumi:pulumi:Stack"
CONTAINER = "docker:index/container:Container"
NETWORK = "docker:index/network:Network"
VOLUME = "docker:index/volume:Volume"
PROVIDER = "pulumi:providers:docker"

Program = Callable[[], Mapping[str, object] | None]


@dataclass
class Registered:
    """A resource as the engine was asked for it."""

    type: str
    name: str
    urn: str
    parent: str
    provider: str
    """URN and ID of the provider, `::` between them; empty for components and providers."""
    inputs: dict[str, Any]
    dependencies: list[str]
    """URNs that it waits for, for whatever reason."""
    input_dependencies: dict[str, list[str]]
    """For each input, the resources that it was computed from."""
    replace_on_changes: list[str]
    delete_before_replace: bool
    former_names: list[str]
    """Names that it may have in the state instead of its own (aliases)."""
    timeouts: dict[str, str]
    """How long it may take to `create` and to `update`, where that is said."""
    outputs: dict[str, Any] | None = None
    """What a component registered; None when it never did."""


@dataclass
class Engine:
    """What a program asked for; `exports` are the values it returned."""

    resources: list[Registered] = field(default_factory=list)
    exports: dict[str, Any] = field(default_factory=dict)

    def of_type(self, token: str) -> list[Registered]:
        """Resources of a type, in the order in which they were registered."""
        return [resource for resource in self.resources if resource.type == token]

    def one(self, token: str, name: str) -> Registered:
        """The one resource of that type and name."""
        (found,) = [resource for resource in self.of_type(token) if resource.name == name]
        return found

    def container(self, name: str) -> Registered:
        """The container whose name on the Docker Engine is `name`."""
        (found,) = [resource for resource in self.of_type(CONTAINER) if resource.inputs["name"] == name]
        return found

    def files(self, container: Registered) -> dict[str, str]:
        """Text by path of what is put into a container, and of what is published to a volume of it."""
        found = uploads(container)
        for mount in container.inputs.get("mounts", []):
            if mount["type"] == "volume" and mount["readOnly"]:
                for name, text in self.published(mount["source"]).items():
                    found[f"{mount['target']}/{name}"] = text
        return found

    def published(self, volume: str) -> dict[str, str]:
        """Text by name of what is published to a volume."""
        (publisher,) = [
            found
            for found in self.of_type(CONTAINER)
            for mount in found.inputs.get("mounts", [])
            if (mount["type"], mount["source"], mount["readOnly"]) == ("volume", volume, False)
        ]
        folder = "/publish/files/"
        put = uploads(publisher)
        return {path.removeprefix(folder): text for path, text in put.items() if path.startswith(folder)}

    def by_urn(self, urn: str) -> Registered:
        """The resource with that URN."""
        (found,) = [resource for resource in self.resources if resource.urn == urn]
        return found


def uploads(container: Registered) -> dict[str, str]:
    """Text by path of what is put into a container as it is made."""
    return {upload["file"]: upload["content"] for upload in container.inputs.get("uploads", [])}


Deploy = Callable[[Program], Engine]


class _Answers(Mocks):
    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        state = dict(args.inputs)
        if args.typ == CONTAINER:
            # What the engine makes up when it creates one: must never reach another resource.
            state |= {"containerLogs": computed(args.name), "hostname": computed(args.name)}
        return f"{args.name}-id", state

    def call(self, args: MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:
        raise AssertionError(f"unexpected provider call {args.token}")


def computed(name: str) -> str:
    """A value that the mock Docker Engine computed for a container's resource."""
    return f"computed-for-{name}"


class _Monitor(MockMonitor):
    def __init__(self, engine: Engine) -> None:
        super().__init__(_Answers())
        self.engine = engine

    def RegisterResource(self, request: resource_pb2.RegisterResourceRequest) -> object:  # noqa: N802
        answer = super().RegisterResource(request)  # type: ignore[no-untyped-call]
        if request.type != STACK_TYPE:
            self._keep(request, answer.urn)
        return answer

    def _keep(self, request: resource_pb2.RegisterResourceRequest, urn: str) -> None:
        twins = [resource for resource in self.engine.resources if resource.urn == urn]
        assert not twins, f"{urn} was registered twice"
        is_provider = request.type.startswith("pulumi:providers:")
        default_provider = request.custom and not request.provider and not is_provider
        assert not default_provider, f"{urn} names no provider: the default one would reach another engine"
        self.engine.resources.append(
            Registered(
                type=request.type,
                name=request.name,
                urn=urn,
                parent=request.parent,
                provider=request.provider,
                inputs=rpc.deserialize_properties(request.object),
                dependencies=list(request.dependencies),
                input_dependencies={
                    name: list(found.urns) for name, found in request.propertyDependencies.items()
                },
                replace_on_changes=list(request.replaceOnChanges),
                delete_before_replace=request.deleteBeforeReplace,
                former_names=[alias.spec.name for alias in request.aliases],
                timeouts={what.name: said for what, said in request.customTimeouts.ListFields()},
            )
        )

    def RegisterResourceOutputs(  # noqa: N802
        self, request: resource_pb2.RegisterResourceOutputsRequest
    ) -> empty_pb2.Empty:
        for resource in self.engine.resources:
            if resource.urn == request.urn:
                assert resource.outputs is None, f"{request.urn} registered outputs twice"
                resource.outputs = rpc.deserialize_properties(request.outputs)
        return empty_pb2.Empty()


def run_program(program: Program) -> Engine:
    """Run `program` until nothing is left to register; what it returns is exported."""
    engine = Engine()
    pulumi.runtime.set_mocks(
        _Answers(), project="tf-serving", stack="test", preview=False, monitor=_Monitor(engine)
    )
    run = pulumi.runtime.test(  # type: ignore[no-untyped-call]
        lambda: pulumi.Output.from_input(program() or {}).apply(engine.exports.update)
    )
    run()
    return engine


def attributes(component: pulumi.ComponentResource, names: Sequence[str]) -> dict[str, object]:
    """Public attributes of a component, to be returned by a program and compared with what it registered."""
    return {name: getattr(component, name) for name in names}
