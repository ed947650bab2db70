"""The objects of Envoy: its files, its Services, and the Deployment whose pods take what clients send."""

from collections.abc import Iterator

from components.envoy_config import CONFIG_FOLDER, ENVOY_BINARY
from components.envoy_edge import API_KEYS_FILE
from components.envoy_files import bootstrap_file
from components.envoy_run import ENVOY_USER, envoy_arguments
from components.kubernetes_envoy import clusters_hash, dynamic_files
from components.kubernetes_object import (
    Json,
    Object,
    command_probe,
    config_map,
    files_volume,
    hashed,
    least_privilege,
    linger,
    manifest,
    match_labels,
    metadata,
    mount,
    pod_security,
)
from components.kubernetes_plan import KubernetesPlan, ProxyPlan
from components.probes import PROBE_TIMEOUT_S, http_probe
from components.settings import ADMIN_PORT

_FILES, _TMP = "files", "tmp"
_START_S = 60
_TIMEOUT_S = 300


def front_end_objects(plan: KubernetesPlan) -> Iterator[Object]:
    """Everything that Envoy is made of, in the order in which it is made."""
    front_end, namespace = plan.front_end, plan.namespace
    bootstrap, text = bootstrap_file(front_end.envoy)
    at_start = {bootstrap: text}
    start = config_map(
        "envoy-bootstrap",
        hashed(f"{front_end.name}-bootstrap", at_start),
        namespace,
        front_end.labels,
        at_start,
    )
    files = config_map(
        "envoy-files",
        f"{front_end.name}-files-{clusters_hash(front_end.envoy)}",
        namespace,
        front_end.labels,
        dynamic_files(front_end.envoy),
    )
    yield from (start, files)
    yield Object(
        key="envoy",
        manifest=_deployment(plan, front_end, (start.name, files.name)),
        after=(start.key, files.key),
        create_timeout_s=_TIMEOUT_S,
        update_timeout_s=front_end.spec.max_replicas * (front_end.drain_s + _START_S) + _TIMEOUT_S,
    )
    # A load balancer's Service is waited for until somebody gives it an address.
    yield Object(key="envoy-service", manifest=_service(plan, front_end), after=("envoy",))
    yield Object(key="envoy-metrics", manifest=_metrics_service(plan, front_end))


def _deployment(plan: KubernetesPlan, front_end: ProxyPlan, config_maps: tuple[str, ...]) -> Json:
    spec: Json = {
        # No replicas: they are the autoscaler's.
        "selector": match_labels(front_end.selector),
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "progressDeadlineSeconds": front_end.drain_s + _START_S + _TIMEOUT_S,
        "revisionHistoryLimit": 3,
        "template": {
            "metadata": {"labels": dict(front_end.labels)},
            "spec": _pod(plan, front_end, config_maps),
        },
    }
    own = metadata(front_end.name, plan.namespace, front_end.labels)
    return manifest("apps/v1", "Deployment", own, spec=spec)


def _pod(plan: KubernetesPlan, front_end: ProxyPlan, config_maps: tuple[str, ...]) -> Json:
    spec: Json = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": front_end.drain_s + front_end.envoy.stop_timeout_s,
        "securityContext": pod_security(ENVOY_USER),
        # Names are written out: the resolver need not try them below every domain that it searches.
        "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "podAffinityTerm": {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": match_labels(front_end.selector),
                        },
                    }
                ]
            }
        },
        "containers": [_container(front_end)],
        "volumes": [
            files_volume(_FILES, config_maps, list(_secrets(front_end))),
            {"name": _TMP, "emptyDir": {"sizeLimit": "64Mi"}},
        ],
    }
    if front_end.spec.node_selector:
        spec["nodeSelector"] = dict(sorted(front_end.spec.node_selector.items()))
    if plan.cluster.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in plan.cluster.pull_secrets]
    return spec


def _secrets(front_end: ProxyPlan) -> Iterator[Json]:
    """Secrets of the cluster, by name: the kubelet puts them beside the other files, and swaps them too."""
    spec = front_end.spec
    if spec.tls_secret:
        yield {"secret": {"name": spec.tls_secret}}
    if spec.api_keys_secret:
        file = [{"key": API_KEYS_FILE, "path": API_KEYS_FILE}]
        yield {"secret": {"name": spec.api_keys_secret, "items": file}}


def _container(front_end: ProxyPlan) -> Json:
    spec = front_end.spec
    # Only that Envoy took its configuration: a model that does not load must not keep the front end of the
    # others down.
    probe = http_probe(ADMIN_PORT, ["/ready"])[1:]
    ports = {"rest": spec.rest_port, "grpc": spec.grpc_port, "metrics": spec.metrics_port}
    return {
        "name": "envoy",
        "image": front_end.envoy.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [ENVOY_BINARY],
        "args": list(envoy_arguments(front_end.envoy, workers=spec.workers)),
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        "resources": {"limits": {"cpu": str(spec.cpus), "memory": f"{spec.memory_mib}Mi"}},
        "startupProbe": command_probe(probe, every_s=1, timeout_s=2 * PROBE_TIMEOUT_S, failures=_START_S),
        "readinessProbe": command_probe(probe, every_s=2, timeout_s=2 * PROBE_TIMEOUT_S, failures=3),
        "livenessProbe": command_probe(probe, every_s=10, timeout_s=2 * PROBE_TIMEOUT_S, failures=3),
        "lifecycle": linger(front_end.drain_s),
        "securityContext": least_privilege(),
        "volumeMounts": [mount(_FILES, CONFIG_FOLDER), mount(_TMP, "/tmp", read_only=False)],  # noqa: S108
    }


def _service(plan: KubernetesPlan, front_end: ProxyPlan) -> Json:
    spec = front_end.spec
    own: Json = {
        "type": spec.service,
        "selector": dict(front_end.selector),
        "ports": [
            {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
            for name, port in {"rest": spec.rest_port, "grpc": spec.grpc_port}.items()
        ],
    }
    if spec.source_ranges:
        own["loadBalancerSourceRanges"] = list(spec.source_ranges)
    annotations = dict(sorted(spec.service_annotations.items()))
    return manifest(
        "v1", "Service", metadata(front_end.name, plan.namespace, front_end.labels, annotations), spec=own
    )


def _metrics_service(plan: KubernetesPlan, front_end: ProxyPlan) -> Json:
    port = front_end.spec.metrics_port
    return manifest(
        "v1",
        "Service",
        metadata(f"{front_end.name}-metrics", plan.namespace, front_end.labels),
        spec={
            "clusterIP": "None",
            "selector": dict(front_end.selector),
            "ports": [{"name": "metrics", "port": port, "targetPort": "metrics", "protocol": "TCP"}],
        },
    )
