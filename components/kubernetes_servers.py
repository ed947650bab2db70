"""The objects of one pool: its files, its headless Service, and the workload whose pods are its instances."""

from collections.abc import Iterator, Mapping

from components import flags, server_files
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
from components.kubernetes_plan import KubernetesPlan, ServersPlan
from components.model_config import models_config
from components.model_plan import MODELS_FOLDER
from components.probes import PROBE_TIMEOUT_S, http_probe, model_paths
from components.server_spec import GRPC_PORT, REST_PORT

_FILES, _MODELS, _SHM, _TMP = "files", "models", "shm", "tmp"
_TMP_MIB = 256
_LIVENESS_EVERY_S, _LIVENESS_FAILURES = 10, 6
_UNPACK = r"""set -euo pipefail
while (($#)); do
  mkdir -p "$2"
  cp -R "$1/." "$2"
  shift 2
done"""


def server_objects(plan: KubernetesPlan, servers: ServersPlan) -> Iterator[Object]:
    """Everything that a pool is made of, in the order in which it is made."""
    namespace, labels = plan.namespace, servers.labels
    once = files_read_once(servers)
    files = config_map(
        f"{servers.pool}-files", hashed(f"{servers.name}-files", once), namespace, labels, once
    )
    models = config_map(
        f"{servers.pool}-models", f"{servers.name}-models", namespace, labels, files_read_again(servers)
    )
    service = Object(key=f"{servers.pool}-service", manifest=_service(plan, servers))
    yield from (files, models, service)
    template = _template(plan, servers, (files.name, models.name))
    yield Object(
        key=servers.pool,
        manifest=_stateful_set(plan, servers, template)
        if servers.sticky
        else _deployment(plan, servers, template),
        after=(files.key, models.key, service.key),
        create_timeout_s=servers.create_timeout_s,
        update_timeout_s=servers.update_timeout_s,
    )


def files_read_once(servers: ServersPlan) -> dict[str, str]:
    """Text by name of what a server reads as it starts: another text replaces the pods."""
    texts = server_files.server_files(servers)
    texts.pop(server_files.models_file(servers), None)
    return texts


def files_read_again(servers: ServersPlan) -> dict[str, str]:
    """The list of models, which servers that run read again."""
    return {server_files.models_file(servers): models_config(servers.models)}


def _service(plan: KubernetesPlan, servers: ServersPlan) -> Json:
    ports = {"grpc": GRPC_PORT, "rest": REST_PORT}
    return manifest(
        "v1",
        "Service",
        metadata(servers.name, plan.namespace, servers.labels),
        spec={
            # Its name in DNS is the addresses of the pods that are ready: Envoy does the rest.
            "clusterIP": "None",
            "selector": dict(servers.selector),
            "ports": [
                {"name": name, "port": port, "targetPort": name, "protocol": "TCP"}
                for name, port in ports.items()
            ],
        },
    )


def _deployment(plan: KubernetesPlan, servers: ServersPlan, template: Json) -> Json:
    spec: Json = {
        **_count(servers),
        "selector": match_labels(servers.selector),
        # Without a free GPU the new pod could only wait for the old one, and the old one for the new.
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": servers.surge, "maxUnavailable": 0 if servers.surge else 1},
        },
        "progressDeadlineSeconds": servers.pod_timeout_s,
        "revisionHistoryLimit": 3,
        "template": template,
    }
    return manifest("apps/v1", "Deployment", _metadata(plan, servers), spec=spec)


def _stateful_set(plan: KubernetesPlan, servers: ServersPlan, template: Json) -> Json:
    spec: Json = {
        **_count(servers),
        "serviceName": servers.name,
        "selector": match_labels(servers.selector),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "revisionHistoryLimit": 3,
        "template": template,
    }
    return manifest("apps/v1", "StatefulSet", _metadata(plan, servers), spec=spec)


def _metadata(plan: KubernetesPlan, servers: ServersPlan) -> Json:
    return metadata(servers.name, plan.namespace, (*servers.labels, *servers.own_labels))


def _count(servers: ServersPlan) -> Json:
    # Where an autoscaler owns the number, naming it here is a conflict with it from then on.
    return {} if servers.on.replicas is None else {"replicas": servers.on.replicas}


def _template(plan: KubernetesPlan, servers: ServersPlan, config_maps: tuple[str, ...]) -> Json:
    cluster, nodes = plan.cluster, servers.nodes
    spec: Json = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # The server installs no handler for SIGTERM: as process 1 it would not even hear of it.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": servers.drain_s + servers.rollout.stop_timeout_s,
        "securityContext": pod_security(servers.volume.user),
        "tolerations": [_toleration(taint) for taint in nodes.taints],
        "nodeSelector": dict(sorted(nodes.selector.items())),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": match_labels(servers.selector),
            }
        ],
        "containers": [_container(servers)],
        "volumes": [files_volume(_FILES, config_maps), *_volumes(servers)],
    }
    if servers.volume.image is not None:
        spec["initContainers"] = [_unpacker(servers, servers.volume.image)]
    if nodes.runtime_class is not None:
        spec["runtimeClassName"] = nodes.runtime_class
    if cluster.priority_class is not None:
        spec["priorityClassName"] = cluster.priority_class
    if cluster.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in cluster.pull_secrets]
    return {"metadata": _pod_metadata(servers), "spec": spec}


def _pod_metadata(servers: ServersPlan) -> Json:
    return {"labels": dict(servers.labels), "annotations": dict(servers.annotations)}


def _toleration(taint: object) -> Json:
    key, value, effect = (getattr(taint, name) for name in ("key", "value", "effect"))
    operator: Json = {"operator": "Exists"} if value is None else {"operator": "Equal", "value": value}
    return {"key": key, **operator, "effect": effect}


def _container(servers: ServersPlan) -> Json:
    names = [model.name for model in servers.models]
    every_s = servers.rollout.health_interval_s
    # Every model is loaded, not only that something answers: the status page is 200 in every state.
    loaded = http_probe(REST_PORT, model_paths(names))[1:]
    # That one will do here: a restart loads no model that could not be loaded before.
    answers = http_probe(REST_PORT, [f"/v1/models/{names[0]}"])[1:]
    timeout_s = PROBE_TIMEOUT_S * (len(names) + 1)
    return {
        "name": "server",
        "image": servers.image,
        "imagePullPolicy": "IfNotPresent",
        # Not the image's script, whose shell would keep signals from the server.
        "command": [flags.BINARY],
        "args": list(flags.server_arguments(servers)),
        "env": [_variable(pair) for pair in sorted(flags.server_environment(servers))],
        "ports": [
            {"name": "grpc", "containerPort": GRPC_PORT, "protocol": "TCP"},
            {"name": "rest", "containerPort": REST_PORT, "protocol": "TCP"},
        ],
        # Limits alone: requests are the same then, so the pod is Guaranteed and whole CPUs are its own. GPUs
        # may not be asked for in any other way.
        "resources": {
            "limits": {
                **_amounts(servers),
                servers.nodes.gpu_resource: str(servers.on.gpus),
            }
        },
        "startupProbe": command_probe(
            loaded, every_s=every_s, timeout_s=timeout_s, failures=-(-servers.load_timeout_s // every_s)
        ),
        "readinessProbe": command_probe(loaded, every_s=every_s, timeout_s=timeout_s, failures=3),
        "livenessProbe": command_probe(
            answers, every_s=_LIVENESS_EVERY_S, timeout_s=2 * PROBE_TIMEOUT_S, failures=_LIVENESS_FAILURES
        ),
        "lifecycle": linger(servers.drain_s),
        "securityContext": least_privilege(),
        "volumeMounts": [
            mount(_FILES, server_files.FOLDER),
            *_model_mounts(servers),
            mount(_SHM, "/dev/shm", read_only=False),  # noqa: S108
            mount(_TMP, "/tmp", read_only=False),  # noqa: S108
        ],
    }


def _amounts(servers: ServersPlan) -> dict[str, str]:
    return {"cpu": str(servers.on.cpus), "memory": f"{servers.memory.container_mib}Mi"}


def _variable(pair: str) -> Json:
    name, _, value = pair.partition("=")
    return {"name": name, "value": value}


def _volumes(servers: ServersPlan) -> list[Json]:
    memory: Json = {
        "name": _SHM,
        "emptyDir": {"medium": "Memory", "sizeLimit": f"{servers.memory.shm_mib}Mi"},
    }
    return [*_model_volumes(servers), memory, {"name": _TMP, "emptyDir": {"sizeLimit": f"{_TMP_MIB}Mi"}}]


def _model_volumes(servers: ServersPlan) -> list[Json]:
    volume = servers.volume
    if volume.claim is not None:
        return [{"name": _MODELS, "persistentVolumeClaim": {"claimName": volume.claim, "readOnly": True}}]
    if volume.image is not None:
        return [{"name": _MODELS, "emptyDir": {}}]
    return [
        {"name": f"{_MODELS}-{position}", "hostPath": {"path": source, "type": "Directory"}}
        for position, (_, source) in enumerate(servers.model_mounts)
    ]


def _model_mounts(servers: ServersPlan) -> list[Json]:
    volume = servers.volume
    if volume.claim is not None:
        return [
            mount(_MODELS, target, sub_path=source.lstrip("/")) for target, source in servers.model_mounts
        ]
    if volume.image is not None:
        return [mount(_MODELS, MODELS_FOLDER)]
    return [
        mount(f"{_MODELS}-{position}", target) for position, (target, _) in enumerate(servers.model_mounts)
    ]


def _unpacker(servers: ServersPlan, image: str) -> Json:
    """Copies the models from their image before the server starts; it sees no GPU."""
    folders = [folder for target, source in servers.model_mounts for folder in (source, target)]
    limits: Mapping[str, str] = _amounts(servers)
    return {
        "name": "models",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/bash", "-c", _UNPACK, "unpack", *folders],
        # An image with CUDA has `all` here, and NVIDIA's runtime would hand over every GPU of the node.
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
        "resources": {"limits": dict(limits)},
        "securityContext": least_privilege(),
        "volumeMounts": [mount(_MODELS, MODELS_FOLDER, read_only=False)],
    }
