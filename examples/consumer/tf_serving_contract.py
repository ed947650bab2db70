"""What other teams read from a stack: flat, typed, versioned. Copy this file into the program that reads.

It needs pydantic (2.12 or newer) and nothing of this project. `docs/consumers.md` says how to use it and what
may change; `CONTRACT_VERSION` rises with every change that could break a reader.
"""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, ValidationError

CONTRACT_VERSION = 1


class ContractError(Exception):
    """What was read is not the outputs of a stack in this version of the contract."""


class _Output(BaseModel):
    # Not strict: a StackReference hands whole numbers over as floats.
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelOutput(_Output):
    """A served model; `max_batch_size` is the most examples in one request, None without batching."""

    name: str
    pool: str
    rest_urls: list[str]
    max_batch_size: int | None = None  # the engine drops what is None


class InstanceOutput(_Output):
    """An instance and what it owns: `gpu_uuids` holds one UUID, unless the instance has all GPUs by name.

    `name` is what the response header `x-served-by` says.
    """

    name: str
    pool: str
    node: str
    slot: str
    gpu_uuids: list[str]
    models: list[str]


class MetricsTarget(_Output):
    """A Prometheus page: `address` is on the loopback of `node`."""

    job: str
    node: str
    address: str
    path: str


class StackOutputs(_Output):
    """Every output of a stack. `rest_url` and `grpc_target` are the first node's, for stacks of one node."""

    contract_version: int
    rest_url: str
    rest_urls: list[str]
    grpc_target: str
    grpc_targets: list[str]
    models: list[ModelOutput]
    instances: list[InstanceOutput]
    metrics_targets: list[MetricsTarget]


def read_outputs(values: Mapping[str, object]) -> StackOutputs:
    """The outputs of a stack from what `StackReference.outputs` holds; outputs added since are ignored.

    Raises ContractError for another version of the contract, for a stack that has no outputs yet, and for
    anything else that this version does not promise.
    """
    version = values.get("contract_version")
    if version is None:
        raise ContractError(
            "the stack has no output contract_version: it is no tf-serving stack, or it was not deployed yet"
        )
    if version != CONTRACT_VERSION:
        raise ContractError(
            f"the stack's outputs have contract version {version}, this program reads {CONTRACT_VERSION}; "
            "copy components/contract.py from the release that the stack was deployed with"
        )
    try:
        return StackOutputs.model_validate(values, extra="ignore")
    except ValidationError as error:
        raise ContractError(
            f"the stack's outputs break contract version {CONTRACT_VERSION}: {error}"
        ) from None
