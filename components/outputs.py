"""The outputs of a stack, built from its plan: what `contract.py` promises to other teams."""

from components.contract import CONTRACT_VERSION, InstanceOutput, MetricsTarget, ModelOutput, StackOutputs
from components.monitoring import ENVOY_METRICS_PATH, front_end_path
from components.plan import Plan
from components.pool_settings import Pool, leading_pools
from components.settings import Settings

__all__ = [
    "CONTRACT_VERSION",
    "InstanceOutput",
    "MetricsTarget",
    "ModelOutput",
    "StackOutputs",
    "stack_outputs",
]


def stack_outputs(settings: Settings, plan: Plan) -> StackOutputs:
    """The outputs of a plan: all of them are known before anything is deployed."""
    front_end = settings.front_end
    rest_urls = {node.name: front_end.rest_url(node.address) for node in settings.nodes}
    grpc_targets = [front_end.grpc_target(node.address) for node in settings.nodes]
    return StackOutputs(
        contract_version=CONTRACT_VERSION,
        rest_url=next(iter(rest_urls.values())),
        rest_urls=list(rest_urls.values()),
        grpc_target=grpc_targets[0],
        grpc_targets=grpc_targets,
        models=[model for pool in leading_pools(settings.pools) for model in _models(pool, rest_urls)],
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
        metrics_targets=_metrics_targets(plan, front_end.metrics_address()),
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
            MetricsTarget(job="envoy", node=node.name, address=address, path=ENVOY_METRICS_PATH),
            *(
                MetricsTarget(
                    job="tf-serving",
                    node=node.name,
                    address=address,
                    path=front_end_path(instance.name),
                )
                for instance in node.instances
            ),
        )
    ]
