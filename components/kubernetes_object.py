"""Small parts that every manifest is made of."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from components.labels import Labels

Json = dict[str, object]
"""A part of a manifest, as plain data."""


@dataclass(frozen=True, kw_only=True)
class Object:
    """A manifest; `key` is its name in Pulumi, which stays when a hash in its own name changes.

    `after` are the keys of what must be there first, and the timeouts, in seconds, how long `up` waits for it
    when it is made and when it is changed.
    """

    key: str
    manifest: Json
    after: tuple[str, ...] = ()
    create_timeout_s: int | None = None
    update_timeout_s: int | None = None

    @property
    def kind(self) -> str:
        """What it is, such as `Deployment`."""
        return str(self.manifest["kind"])

    @property
    def api_version(self) -> str:
        """Such as `apps/v1`."""
        return str(self.manifest["apiVersion"])

    @property
    def name(self) -> str:
        """Its name in the cluster."""
        return str(cast("Mapping[str, object]", self.manifest["metadata"])["name"])


def manifest(api_version: str, kind: str, metadata: Mapping[str, object], **body: object) -> Json:
    """An object of the API."""
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


def metadata(name: str, namespace: str, labels: Labels, annotations: Labels | Mapping[str, str] = ()) -> Json:
    """Name, place and labels of an object."""
    said = dict(annotations)
    own: Json = {"name": name, "namespace": namespace, "labels": dict(labels)}
    return {**own, "annotations": said} if said else own


def config_map(key: str, name: str, namespace: str, labels: Labels, files: Mapping[str, str]) -> Object:
    """Files, each by its name."""
    return Object(
        key=key, manifest=manifest("v1", "ConfigMap", metadata(name, namespace, labels), data=dict(files))
    )


def hashed(name: str, files: Mapping[str, str]) -> str:
    """A name that changes with the text: whatever names it is replaced then, and what runs keeps its own."""
    digest = hashlib.sha256()
    for file, text in sorted(files.items()):
        digest.update(f"{file}\0{text}\0".encode())
    return f"{name}-{digest.hexdigest()[:10]}"


def files_volume(name: str, config_maps: Sequence[str], secrets: Sequence[Json] = ()) -> Json:
    """One folder with the files of several ConfigMaps, which the kubelet swaps as a whole."""
    sources: list[Json] = [{"configMap": {"name": each}} for each in config_maps]
    return {"name": name, "projected": {"defaultMode": 0o444, "sources": [*sources, *secrets]}}


def mount(name: str, path: str, *, read_only: bool = True, sub_path: str | None = None) -> Json:
    """Where a container sees a volume. Never a file alone: the kubelet would not change it any more."""
    own: Json = {"name": name, "mountPath": path}
    if sub_path is not None:
        own["subPath"] = sub_path
    return {**own, "readOnly": True} if read_only else own


def least_privilege() -> Json:
    """What a container may do: nothing that its program does not need."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": True,
    }


def pod_security(user: int) -> Json:
    """As whom a pod's containers run."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def command_probe(command: Sequence[str], *, every_s: int, timeout_s: int, failures: int) -> Json:
    """A probe that runs a command in the container."""
    return {
        "exec": {"command": list(command)},
        "periodSeconds": every_s,
        "timeoutSeconds": timeout_s,
        "failureThreshold": failures,
    }


def linger(seconds: int) -> Json:
    """Keeps a container up for a while when its pod is to go: others have to hear of it first."""
    return {"preStop": {"exec": {"command": ["/bin/bash", "-c", f"sleep {seconds}"]}}}


def match_labels(labels: Labels) -> Json:
    """A selector."""
    return {"matchLabels": dict(labels)}
