"""Objects that tests deploy: plain values, in the API's own words."""

from collections.abc import Mapping

Json = dict[str, object]


def deployment(
    name: str,
    *,
    replicas: int | None,
    on: str,
    surge: int = 0,
    image: str = "tensorflow/serving:2.14.1-gpu",
    timeout: str = "30s",
    annotations: Mapping[str, str] | None = None,
    gpus: int = 1,
    **spec: object,
) -> Json:
    """A Deployment of one-GPU pods on the nodes labelled `for: <on>`, rolled with so much surge."""
    limits = {"cpu": "1", "memory": "1Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    rolling = {"maxSurge": surge, "maxUnavailable": 0 if surge else 1}
    counted = {} if replicas is None else {"replicas": replicas}
    return {
        "kind": "Deployment",
        "timeout": timeout,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            **counted,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": dict(annotations or {})},
                "spec": {
                    "nodeSelector": {"for": on},
                    "automountServiceAccountToken": False,
                    "containers": [{"name": "server", "image": image, "resources": {"limits": limits}}],
                },
            },
            **spec,
        },
    }


def config_map(name: str, text: str) -> Json:
    """A ConfigMap with one file."""
    return {
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"models.config": text},
    }


def autoscaler(name: str, *, least: int, most: int) -> Json:
    """An autoscaler of the Deployment of the same name, on CPU."""
    return {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 75}},
                }
            ],
        },
    }


def disruption_budget(name: str) -> Json:
    """A budget that lets one pod of the Deployment of the same name be evicted at a time."""
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": name}}},
    }
