"""How many pods there are and may be away: autoscalers, rules for a metrics adapter, disruption budgets."""

from collections.abc import Iterator

from components import block_yaml
from components.kubernetes_object import Json, Object, config_map, manifest, match_labels, metadata
from components.kubernetes_plan import KubernetesPlan, ServersPlan
from components.kubernetes_settings import Autoscale

_CPU_PERCENT = 75
_GPU_METRIC = "tf_serving_gpu_percent"
_QUEUE_METRIC = "tf_serving_queue_ms"
_QUIET_S = 300
_QUEUED = ":tensorflow:serving:batching_session:queuing_latency"


def pool_scaling(plan: KubernetesPlan, servers: ServersPlan) -> Iterator[Object]:
    """The budget of a pool, and its autoscaler where it has one."""
    budget = servers.on.disruptions.model_dump(exclude_none=True)
    names = {"max_unavailable": "maxUnavailable", "min_available": "minAvailable"}
    spec: Json = {
        **{names[name]: value for name, value in budget.items()},
        # A pod that is not ready serves nobody: it must not keep a node from being drained.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": match_labels(servers.selector),
    }
    own = metadata(servers.name, plan.namespace, servers.labels)
    yield Object(
        key=f"{servers.pool}-budget", manifest=manifest("policy/v1", "PodDisruptionBudget", own, spec=spec)
    )
    if servers.on.autoscale:
        yield _autoscaler(plan, servers, servers.on.autoscale)


def front_end_scaling(plan: KubernetesPlan) -> Iterator[Object]:
    """The budget and the autoscaler of Envoy."""
    front_end = plan.front_end
    own = metadata(front_end.name, plan.namespace, front_end.labels)
    spec: Json = {"maxUnavailable": 1, "selector": match_labels(front_end.selector)}
    yield Object(key="envoy-budget", manifest=manifest("policy/v1", "PodDisruptionBudget", own, spec=spec))
    yield Object(
        key="envoy-autoscaler",
        manifest=manifest(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            own,
            spec=_bounds("Deployment", front_end.name, front_end.spec.replicas, front_end.spec.max_replicas)
            | {"metrics": [_cpu(_CPU_PERCENT)]},
        ),
        after=("envoy",),
    )


def adapter_rules(plan: KubernetesPlan) -> Iterator[Object]:
    """What Prometheus' metrics adapter is to be told; only where an autoscaler asks for such a metric."""
    scaled = [servers.on.autoscale for servers in plan.servers if servers.on.autoscale]
    rules = [_gpu_rule()] if any(each.gpu_percent for each in scaled) else []
    rules += [_queue_rule()] if any(each.queue_ms for each in scaled) else []
    if rules:
        text = block_yaml.render({"rules": rules})
        name = f"{plan.stack}-adapter-rules"
        yield config_map("adapter-rules", name, plan.namespace, plan.labels, {"rules.yaml": text})


def _autoscaler(plan: KubernetesPlan, servers: ServersPlan, wanted: Autoscale) -> Object:
    spec: Json = {
        **_bounds("Deployment", servers.name, wanted.least, wanted.most),
        "metrics": [_measure(wanted)],
        # A pod that goes too early is one that loads its models again.
        "behavior": {
            "scaleDown": {"stabilizationWindowSeconds": min(3600, max(_QUIET_S, servers.load_timeout_s))}
        },
    }
    own = metadata(servers.name, plan.namespace, servers.labels)
    return Object(
        key=f"{servers.pool}-autoscaler",
        manifest=manifest("autoscaling/v2", "HorizontalPodAutoscaler", own, spec=spec),
        after=(servers.pool,),
    )


def _bounds(kind: str, name: str, least: int, most: int) -> Json:
    return {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": name},
        "minReplicas": least,
        "maxReplicas": most,
    }


def _measure(wanted: Autoscale) -> Json:
    if wanted.gpu_percent is not None:
        return _of_pods(_GPU_METRIC, wanted.gpu_percent)
    if wanted.queue_ms is not None:
        return _of_pods(_QUEUE_METRIC, wanted.queue_ms)
    return _cpu(wanted.cpu_percent or _CPU_PERCENT)


def _cpu(percent: int) -> Json:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _of_pods(metric: str, value: int) -> Json:
    target = {"type": "AverageValue", "averageValue": str(value)}
    return {"type": "Pods", "pods": {"metric": {"name": metric}, "target": target}}


def _rule(series: str, metric: str, query: str) -> Json:
    # Without labels that name the pod the autoscaler finds nothing, and says <unknown>.
    overrides = {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}
    return {
        "seriesQuery": f'{{__name__="{series}",namespace!="",pod!=""}}',
        "resources": {"overrides": overrides},
        "name": {"as": metric},
        "metricsQuery": query,
    }


def _gpu_rule() -> Json:
    return _rule(
        "DCGM_FI_DEV_GPU_UTIL", _GPU_METRIC, "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
    )


def _queue_rule() -> Json:
    def rate(part: str) -> str:
        return f'sum(rate({{__name__="{_QUEUED}_{part}",<<.LabelMatchers>>}}[1m])) by (<<.GroupBy>>)'

    # The server counts microseconds.
    return _rule(f"{_QUEUED}_sum", _QUEUE_METRIC, f"{rate('sum')} / {rate('count')} / 1000")
