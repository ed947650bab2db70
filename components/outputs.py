"""What other teams read from a stack: flat, typed, versioned.

A consumer validates what `StackReference` hands it with `StackOutputs`. `CONTRACT_VERSION` rises with every
change that could break a reader: a field renamed, removed or given another meaning.
"""

from pydantic import BaseModel, ConfigDict

from components.plan import Plan
from components.pool_settings import Pool
from components.settings import Settings

CONTRACT_VERSION = 1


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


def stack_outputs(settings: Settings, plan: Plan) -> StackOutputs:
    """The outputs of a plan: all of them are known before anything is deployed."""
    front_end = settings.front_end
    rest_urls = {node.name: f"http://{node.address}:{front_end.rest_port}" for node in settings.nodes}
    grpc_targets = [f"{node.address}:{front_end.grpc_port}" for node in settings.nodes]
    return StackOutputs(
        contract_version=CONTRACT_VERSION,
        rest_url=next(iter(rest_urls.values())),
        rest_urls=list(rest_urls.values()),
        grpc_target=grpc_targets[0],
        grpc_targets=grpc_targets,
        models=[model for pool in settings.pools for model in _models(pool, rest_urls)],
        instances=[
            InstanceOutput(
                name=instance.name,
                pool=instance.pool,
                node=instance.node,
                slot=instance.slot.name,
                gpu_uuids=[slot.uuid for slot in instance.slots],
                models=[model.name for model in instance.models],
            )
            for instance in plan.instances
        ],
        metrics_targets=_metrics_targets(plan, f"127.0.0.1:{front_end.metrics_port}"),
    )


def _models(pool: Pool, rest_urls: dict[str, str]) -> list[ModelOutput]:
    nodes = dict.fromkeys(group.node for group in pool.slots)
    return [
        ModelOutput(
            name=name,
            pool=pool.name,
            rest_urls=[f"{rest_urls[node]}/v1/models/{name}" for node in nodes],
            max_batch_size=pool.batching.max_batch_size if pool.batching else None,
        )
        for model in pool.models
        for name in model.served_names
    ]


def _metrics_targets(plan: Plan, address: str) -> list[MetricsTarget]:
    return [
        target
        for node in plan.nodes
        for target in (
            MetricsTarget(job="envoy", node=node.name, address=address, path="/metrics"),
            *(
                MetricsTarget(
                    job="tf-serving",
                    node=node.name,
                    address=address,
                    path=f"/instances/{instance.name}/metrics",
                )
                for instance in node.instances
            ),
        )
    ]
