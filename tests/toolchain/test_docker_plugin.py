"""The rebuilt Docker plugin takes the very names that the Python SDK sends."""

import json
import subprocess
from dataclasses import dataclass
from typing import Any

import grpc
import pulumi_docker as docker
import pytest
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from toolchain import rebuilt
from toolchain.tools import own_home
from toolchain.versions import versions

pytestmark = pytest.mark.preview

RESOURCES = [
    "BuildxBuilder",
    "Container",
    "Network",
    "Plugin",
    "RegistryImage",
    "RemoteImage",
    "Secret",
    "Service",
    "ServiceConfig",
    "Tag",
    "Volume",
]
# `Image` builds images with the official plugin's own code, which we have no use for.
IMAGE = {"ImageArgs", "DockerBuildArgs", "CacheFromArgs", "RegistryArgs"}
# The SDK has these as inputs too, though only the engine on the host can say what they are.
OUTPUTS = {"ContainerNetworkDataArgs", "VolumeClusterArgs"}


@dataclass(frozen=True)
class Schema:
    """Names on the wire: of each resource's inputs, of the provider's, and of each nested block."""

    resources: dict[str, set[str]]
    provider: set[str]
    blocks: dict[str, set[str]]


@pytest.fixture(scope="module")
def schema() -> Schema:
    """What the plugin answers when it is asked for its schema."""
    rebuilt.get(["docker"])
    plugin = f"plugins/resource-docker-v{versions().plugins['docker']}/pulumi-resource-docker"
    with subprocess.Popen(
        [own_home() / plugin, "127.0.0.1:1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                stub = provider_pb2_grpc.ResourceProviderStub(channel)
                served: dict[str, Any] = json.loads(stub.GetSchema(provider_pb2.GetSchemaRequest()).schema)
        finally:
            process.kill()
    return Schema(
        resources={token: set(entry["inputProperties"]) for token, entry in served["resources"].items()},
        provider=set(served["provider"]["inputProperties"]),
        blocks={token: set(entry["properties"]) for token, entry in served["types"].items()},
    )


def names(arguments: type) -> set[str]:
    """The names on the wire of one of the SDK's classes of inputs."""
    getters = [value.fget for value in vars(arguments).values() if isinstance(value, property)]
    return {getattr(getter, "_pulumi_name", "") for getter in getters}


@pytest.mark.parametrize("resource", RESOURCES)
def test_a_resource_has_the_sdks_type_and_takes_what_the_sdk_sends(schema: Schema, resource: str) -> None:
    token = f"docker:index/{resource[0].lower()}{resource[1:]}:{resource}"
    assert schema.resources[token] == names(getattr(docker, f"{resource}Args"))


def test_the_provider_takes_what_the_sdk_sends(schema: Schema) -> None:
    assert schema.provider == names(docker.ProviderArgs)


def test_every_nested_block_of_the_sdk_is_known_with_the_same_names(schema: Schema) -> None:
    known = {frozenset(block) for block in schema.blocks.values()}
    top_level = {f"{resource}Args" for resource in [*RESOURCES, "Provider"]}
    unknown = [
        name
        for name, arguments in vars(docker).items()
        if name.endswith("Args")
        and name not in top_level | IMAGE | OUTPUTS
        and frozenset(names(arguments)) not in known
    ]
    assert unknown == []
