"""Makes the objects of objects.json on the provider of provider.json; each gets the name that it is told."""

import json
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

KINDS = {
    "ConfigMap": k8s.core.v1.ConfigMap,
    "Deployment": k8s.apps.v1.Deployment,
    "HorizontalPodAutoscaler": k8s.autoscaling.v2.HorizontalPodAutoscaler,
    "Job": k8s.batch.v1.Job,
    "Namespace": k8s.core.v1.Namespace,
    "NetworkPolicy": k8s.networking.v1.NetworkPolicy,
    "PodDisruptionBudget": k8s.policy.v1.PodDisruptionBudget,
    "Secret": k8s.core.v1.Secret,
    "Service": k8s.core.v1.Service,
}
provider = k8s.Provider("cluster", **json.loads(Path("provider.json").read_text()))
for manifest in json.loads(Path("objects.json").read_text()):
    kind, timeout = manifest.pop("kind"), manifest.pop("timeout", None)
    timeouts = pulumi.CustomTimeouts(create=timeout, update=timeout) if timeout else None
    options = pulumi.ResourceOptions(provider=provider, custom_timeouts=timeouts)
    KINDS[kind](manifest["metadata"]["name"], opts=options, **manifest)
