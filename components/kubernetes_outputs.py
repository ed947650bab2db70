"""The outputs of a stack on Kubernetes: the same contract as on Docker, built from its own plan."""

from components.contract import CONTRACT_VERSION, InstanceOutput, MetricsTarget, ModelOutput, StackOutputs
from components.kubernetes_plan import KubernetesPlan, ServersPlan
from components.kubernetes_settings import KubernetesSettings
from components.monitoring import ENVOY_METRICS_PATH, METRICS_PATH
from components.pool_settings import leading_pools
from components.server_spec import REST_PORT


def kubernetes_outputs(settings: KubernetesSettings, plan: KubernetesPlan) -> StackOutputs:
    """The outputs of a plan: all of them are known before anything is deployed.

    Pods of a Deployment have no names yet, so each pool is one instance here: that is also what `x-served-by`
    says of them. Pods that users stick to are told apart. Nobody knows which GPUs Kubernetes will choose.
    """
    spec = plan.front_end.spec
    address = spec.address or plan.front_end.host
    rest_url, grpc_target = spec.rest_url(address), spec.grpc_target(address)
    return StackOutputs(
        contract_version=CONTRACT_VERSION,
        rest_url=rest_url,
        rest_urls=[rest_url],
        grpc_target=grpc_target,
        grpc_targets=[grpc_target],
        models=[
            ModelOutput(
                name=name,
                pool=pool.name,
                rest_urls=[f"{rest_url}/v1/models/{name}"],
                max_batch_size=pool.batching.max_batch_size if pool.batching else None,
            )
            for pool in leading_pools(settings.pools)
            for model in pool.models
            for name in model.served_names
        ],
        instances=[
            InstanceOutput(
                name=name,
                pool=servers.pool,
                node=servers.nodes.name,
                slot=servers.nodes.gpu_resource,
                gpu_uuids=[],
                models=[model.name for model in servers.models],
            )
            for servers in plan.servers
            for name in servers.pod_names or (servers.name,)
        ],
        metrics_targets=[
            MetricsTarget(
                job="envoy",
                node=plan.front_end.name,
                address=f"{plan.front_end.metrics_host}:{spec.metrics_port}",
                path=ENVOY_METRICS_PATH,
            ),
            *(_metrics_target(servers) for servers in plan.servers),
        ],
    )


def _metrics_target(servers: ServersPlan) -> MetricsTarget:
    # The name stands for every pod: Prometheus finds them by DNS or asks the API.
    address = f"{servers.host}:{REST_PORT}"
    return MetricsTarget(job="tf-serving", node=servers.nodes.name, address=address, path=METRICS_PATH)
