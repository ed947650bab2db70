"""The Job that `up` waits for: it asks Envoy and the servers until they have what the ConfigMaps say.

What runs reads changed files by itself, some time after the ConfigMap was changed. The Job's name holds the
hash of what it is told: other text is another Job.
"""

import json
from collections.abc import Iterator

from components.envoy_run import ENVOY_USER
from components.kubernetes_envoy import dynamic_files
from components.kubernetes_object import (
    Json,
    Object,
    config_map,
    files_volume,
    hashed,
    least_privilege,
    manifest,
    metadata,
    mount,
    pod_security,
)
from components.kubernetes_plan import KubernetesPlan
from components.model_config import model_lines
from components.scripts import script
from components.server_spec import REST_PORT
from components.settings import STATUS_PORT

_FOLDER = "/acceptance"
_SCRIPT, _STATUS, _SETTINGS = "accepted.sh", "server_status.sh", "settings"
_CONTAINER = "acceptance"
# The kubelet looks once a minute, and what it then finds may be as old again.
_KUBELET_S = 150
# The Job's pod is placed and its image pulled; an address that swallows packets takes two minutes.
_MARGIN_S = 300
_STATISTICS = {"cds": "cluster_manager.cds", "lds": "listener_manager.lds"}


def acceptance_objects(plan: KubernetesPlan) -> Iterator[Object]:
    """The Job and what it reads; the last of a stack to be made."""
    own, namespace = plan.acceptance, plan.namespace
    files = {_SCRIPT: script(_SCRIPT), _STATUS: script(_STATUS), _SETTINGS: settings_text(plan)}
    told = config_map("acceptance-files", hashed(f"{own.name}-files", files), namespace, own.labels, files)
    yield told
    spec: Json = {
        # What it found wrong is wrong at a second look too; a pod that was evicted found nothing. (A rule
        # that fails the Job by its exit code has a reason that the provider does not know, and waits out.)
        "backoffLimit": 0,
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
            ]
        },
        "template": {"metadata": {"labels": dict(own.labels)}, "spec": _pod(plan, told.name)},
    }
    name = hashed(own.name, {"spec": json.dumps(spec, sort_keys=True)})
    yield Object(
        key="acceptance",
        manifest=manifest(
            "batch/v1", "Job", metadata(name, namespace, own.labels, _annotations(plan)), spec=spec
        ),
        after=(told.key, *(servers.pool for servers in plan.servers), "envoy"),
        create_timeout_s=patience_s(plan) + _MARGIN_S,
    )


def patience_s(plan: KubernetesPlan) -> int:
    """How long the Job asks: until the kubelet has brought the files, and a version that is new is loaded."""
    return _KUBELET_S + max(servers.load_timeout_s for servers in plan.servers)


def settings_text(plan: KubernetesPlan) -> str:
    """What the script is told; its head says what the lines mean."""
    return "".join(f"{line}\n" for line in _lines(plan))


def _lines(plan: KubernetesPlan) -> Iterator[str]:
    yield f"wait {patience_s(plan)}"
    yield f"brought {_KUBELET_S}"
    # Its name leads to each pod, unlike that of the Service for clients.
    yield f"envoy {plan.front_end.metrics_host} {STATUS_PORT}"
    for file, text in dynamic_files(plan.front_end.envoy).items():
        name = file.removesuffix(".yaml")
        listener = name.removeprefix("rds-")
        statistic = _STATISTICS.get(name) or (f"http.{listener}.rds.{listener}" if listener != name else None)
        if statistic:
            yield f"taken {statistic} {_version(text)}"
    for servers in plan.servers:
        yield f"pool {servers.host} {REST_PORT}"
        yield from model_lines(servers.models)


def _version(text: str) -> str:
    return text.partition("\n")[0].removeprefix("version_info: ").strip('"')


def _annotations(plan: KubernetesPlan) -> dict[str, str]:
    if not plan.cluster.render_to:
        # One that failed would stay as it is, and fail every `up` until the text changes.
        return {"pulumi.com/replaceUnready": "true"}
    # Argo CD runs it when the rest is well, and clears it away; for others it is a Job like any.
    return {
        "argocd.argoproj.io/hook": "PostSync",
        "argocd.argoproj.io/hook-delete-policy": "BeforeHookCreation,HookSucceeded",
    }


def _pod(plan: KubernetesPlan, files: str) -> Json:
    spec: Json = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "securityContext": pod_security(ENVOY_USER),
        "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
        "containers": [
            {
                "name": _CONTAINER,
                # Envoy's image has all that it needs, and is there already.
                "image": plan.acceptance.image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["/bin/bash", f"{_FOLDER}/{_SCRIPT}", f"{_FOLDER}/{_SETTINGS}"],
                "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
                # The last of what it said is then what `up` shows.
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": least_privilege(),
                "volumeMounts": [mount("files", _FOLDER)],
            }
        ],
        "volumes": [files_volume("files", [files])],
    }
    selector = plan.front_end.spec.node_selector
    if selector:
        spec["nodeSelector"] = dict(sorted(selector.items()))
    if plan.cluster.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in plan.cluster.pull_secrets]
    return spec
