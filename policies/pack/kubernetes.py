"""Views of the containers of a pod template, and the texts of a ConfigMap, from Kubernetes resources."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pack.reading import Reader, Unread, decoded
from pack.resource import Resource
from pack.workload import GpuRequest, Limits, Mount, Port, Probe, Security, Workload

_TYPE = re.compile(r"kubernetes:(?:[a-z0-9.]+)/v[0-9a-z]+:([A-Za-z]+)$")
# Where each kind keeps its pod template; a Pod is one.
_TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "Pod": (),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
# Fields of the view that a container's own properties tell.
_OF_A_CONTAINER = (
    "template", "image", "command", "env", "gpus", "memory", "cpus", "ports", "mounts", "security", "probe"
)  # fmt: skip
_GPU_RESOURCE = re.compile(r"nvidia\.com/(gpu|mig-.+|gpu\..+)$")
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
# Parts of a security context that say how a container is confined, and what switches each off.
_CONFINEMENT = (
    ("seccompProfile", "type", "Unconfined"),
    ("appArmorProfile", "type", "Unconfined"),
    ("seLinuxOptions", "type", "spc_t"),
)
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
_NEVER_WRITTEN = ("configMap", "secret", "projected", "downwardAPI", "image")
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")
_MIB = 2.0**20
_POWERS = {
    None: 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50,
}  # fmt: skip


def kind(type_token: str) -> str | None:
    """The kind of a Kubernetes resource (`Deployment`), or None for another package's."""
    match = _TYPE.match(type_token)
    return match[1] if match else None


def quantity(text: str) -> float | None:
    """A Kubernetes quantity (`512Mi`, `500m`) as a number, or None."""
    match = _QUANTITY.match(text.strip())
    return float(match[1]) * _POWERS[match[2]] if match else None


def workloads(resource: Resource) -> Iterator[Workload]:
    """A view of every container of a workload's pod template; nothing for other resources."""
    found = kind(resource.type)
    if found is None or found not in _TEMPLATES:
        return
    reader = Reader()
    template: Mapping[str, object] = resource.props
    path = ""
    for step in _TEMPLATES[found]:
        path = f"{path}.{step}".lstrip(".")
        template = reader.mapping(template.get(step), path, "template")
    if unknown := reader.unread.get("template"):
        reader.unread["labels"] = list(unknown)
    spec_path = f"{path}.spec".lstrip(".")
    spec = reader.mapping(template.get("spec"), spec_path, "template")
    owner = reader.mapping(resource.props.get("metadata"), "metadata", "labels")
    metadata = reader.mapping(template.get("metadata"), f"{path}.metadata".lstrip("."), "labels")
    top = reader.mapping(resource.props.get("spec"), "spec", "replicas")
    replicas = reader.whole(top.get("replicas"), "spec.replicas", "replicas")
    labels = {**reader.texts_of(owner, "labels"), **reader.texts_of(metadata, "labels")}
    pod = _Pod(
        resource=resource,
        spec=spec,
        path=spec_path,
        labels={**labels, **reader.texts_of(metadata, "annotations")},
        replicas=1 if replicas is None else replicas,
        common=reader,
    )
    for section, first in (("initContainers", True), ("containers", False)):
        for place, given in reader.items(spec.get(section), f"{spec_path}.{section}", "template"):
            if given is not None:
                own = Reader()
                container = own.mapping(given, place, "template")
                yield pod.container(container, place, init=first, unread=own.unread.get("template", ()))
    # What cannot be read may hold any containers: one stands for all of them.
    if unknown := reader.unread.get("template"):
        yield pod.container({}, spec_path, init=False, unread=unknown)


def config_map(resource: Resource) -> tuple[str, dict[str, str]] | None:
    """The name of a ConfigMap and its texts, also those in base64, or None for other resources."""
    if kind(resource.type) != "ConfigMap":
        return None
    reader = Reader()
    metadata = reader.mapping(resource.props.get("metadata"), "metadata", "name")
    name = reader.text(metadata.get("name"), "metadata.name", "name") or resource.name
    encoded = reader.texts_of(resource.props, "binaryData")
    texts = {key: decoded(text) for key, text in encoded.items()}
    return name, {**texts, **reader.texts_of(resource.props, "data")}


@dataclass(frozen=True, kw_only=True)
class _Pod:
    resource: Resource
    spec: Mapping[str, object]
    path: str
    labels: Mapping[str, str]
    replicas: int
    common: Reader

    def container(
        self, props: Mapping[str, object], path: str, *, init: bool, unread: Sequence[Unread] = ()
    ) -> Workload:
        """The view of one; `unread` is why nothing of it can be read."""
        # What the pod as a whole does not tell, none of its containers tells.
        of_pod = {name: list(found) for name, found in self.common.unread.items() if name != "template"}
        reader = Reader(of_pod)
        for name in _OF_A_CONTAINER if unread else ():
            reader.unread.setdefault(name, []).extend(unread)
        env = _env(reader, props, path)
        own = reader.text(props.get("name"), f"{path}.name", "name") or path
        return Workload(
            target="kubernetes",
            resource=self.resource,
            name=self.resource.name if path == self.path else f"{self.resource.name}/{own}",
            machine=None,
            props=props,
            image=reader.text(props.get("image"), f"{path}.image", "image"),
            entrypoint=reader.texts(props.get("command"), f"{path}.command", "command"),
            arguments=reader.texts(props.get("args"), f"{path}.args", "command"),
            env=env,
            labels=self.labels,
            gpus=tuple(_gpus(reader, props, path, env)),
            limits=_limits(reader, props, path, self.spec),
            ports=tuple(_host_ports(reader, props, path)),
            mounts=tuple(self._mounts(reader, props, path)),
            security=self._security(reader, props, path),
            probe=_probe(reader, props, path, "readinessProbe"),
            startup_probe=_probe(reader, props, path, "startupProbe"),
            liveness_probe=_probe(reader, props, path, "livenessProbe"),
            restart=reader.text(self.spec.get("restartPolicy"), f"{self.path}.restartPolicy", "restart"),
            stop_timeout_s=reader.number(
                self.spec.get("terminationGracePeriodSeconds"),
                f"{self.path}.terminationGracePeriodSeconds",
                "stop",
            ),
            lingers=_lingers(reader, props, path),
            replicas=self.replicas,
            init_container=init,
            node_selector=reader.texts_of(self.spec, "nodeSelector"),
            unread={name: tuple(found) for name, found in reader.unread.items()},
        )

    def _security(self, reader: Reader, props: Mapping[str, object], path: str) -> Security:
        at, of_pod_at = f"{path}.securityContext", f"{self.path}.securityContext"
        of_pod = reader.mapping(self.spec.get("securityContext"), of_pod_at, "security")
        own = reader.mapping(props.get("securityContext"), at, "security")
        capabilities = reader.mapping(own.get("capabilities"), f"{at}.capabilities", "security")

        def host(name: str) -> bool | None:
            return reader.flag(self.spec.get(name), f"{self.path}.{name}", "security")

        def said(name: str) -> bool | None:
            return reader.flag(own.get(name), f"{at}.{name}", "security")

        def unconfined() -> Iterator[str]:
            for name, key, off in _CONFINEMENT:
                where, holder = (at, own) if own.get(name) is not None else (of_pod_at, of_pod)
                profile = reader.mapping(holder.get(name), f"{where}.{name}", "security")
                if reader.text(profile.get(key), f"{where}.{name}.{key}", "security") == off:
                    yield f"{where}.{name}.{key}: {off}"
            if reader.text(own.get("procMount"), f"{at}.procMount", "security") == "Unmasked":
                yield f"{at}.procMount: Unmasked"
            annotation = f"{_APPARMOR}{props.get('name')}"
            if self.labels.get(annotation) == "unconfined":
                yield f"annotation {annotation}: unconfined"

        user = own.get("runAsUser", of_pod.get("runAsUser"))
        return Security(
            privileged=bool(said("privileged")),
            host_network=bool(host("hostNetwork")),
            host_pid=bool(host("hostPID")),
            host_ipc=bool(host("hostIPC")),
            host_users=f"{self.path}.hostUsers: true" if host("hostUsers") else None,
            unconfined=tuple(unconfined()),
            user=reader.text(user, f"{at}.runAsUser", "security"),
            read_only_root=bool(said("readOnlyRootFilesystem")),
            no_new_privileges=said("allowPrivilegeEscalation") is False,
            capabilities_added=reader.texts(capabilities.get("add"), f"{at}.capabilities.add", "security"),
            capabilities_dropped=reader.texts(
                capabilities.get("drop"), f"{at}.capabilities.drop", "security"
            ),
        )

    def _mounts(self, reader: Reader, props: Mapping[str, object], path: str) -> Iterator[Mount]:
        sources: dict[str, Mapping[str, object]] = {}
        for at, volume in reader.objects(self.spec.get("volumes"), f"{self.path}.volumes", "mounts"):
            sources[reader.text(volume.get("name"), f"{at}.name", "mounts") or at] = volume
        for at, item in reader.objects(props.get("volumeMounts"), f"{path}.volumeMounts", "mounts"):
            name = reader.text(item.get("name"), f"{at}.name", "mounts") or ""
            volume = sources.get(name, {})
            host = reader.mapping(volume.get("hostPath"), f"{at}.hostPath", "mounts")
            where = reader.text(host.get("path"), f"{at}.hostPath.path", "mounts")
            texts = list(_config_maps_of(reader, volume, at))
            own = volume.get("emptyDir") is not None  # gone with its pod
            read_only = bool(reader.flag(item.get("readOnly"), f"{at}.readOnly", "mounts"))
            # A projected volume is several ConfigMaps in one folder.
            for source in [where] if where else texts or [name]:
                yield Mount(
                    path=at,
                    kind="bind" if where else "config" if texts else "other" if own else "volume",
                    source=source,
                    target=reader.text(item.get("mountPath"), f"{at}.mountPath", "mounts") or "",
                    read_only=read_only or _is_read_only(reader, volume, at),
                )


def _config_maps_of(reader: Reader, volume: Mapping[str, object], at: str) -> Iterator[str]:
    """Names of the ConfigMaps that a volume shows."""
    projected = reader.mapping(volume.get("projected"), f"{at}.projected", "mounts")
    parts = reader.objects(projected.get("sources"), f"{at}.projected.sources", "mounts")
    for place, part in ((at, volume), *parts):
        config = reader.mapping(part.get("configMap"), f"{place}.configMap", "mounts")
        name = reader.text(config.get("name"), f"{place}.configMap.name", "mounts")
        if name is not None:
            yield name


def _is_read_only(reader: Reader, volume: Mapping[str, object], path: str) -> bool:
    """Whether nobody can write to a volume, however it is mounted."""
    if any(name in volume for name in _NEVER_WRITTEN):
        return True
    for name, given in volume.items():
        if isinstance(given, dict) and reader.flag(
            given.get("readOnly"), f"{path}.{name}.readOnly", "mounts"
        ):
            return True
    return False


def _lingers(reader: Reader, props: Mapping[str, object], path: str) -> bool:
    lifecycle = reader.mapping(props.get("lifecycle"), f"{path}.lifecycle", "stop")
    return bool(reader.mapping(lifecycle.get("preStop"), f"{path}.lifecycle.preStop", "stop"))


def _env(reader: Reader, props: Mapping[str, object], path: str) -> dict[str, str]:
    """The variables that are written out; one from a reference has an empty value."""
    env = {}
    for at, item in reader.objects(props.get("env"), f"{path}.env", "env"):
        name = reader.text(item.get("name"), f"{at}.name", "env")
        value = reader.text(item.get("value"), f"{at}.value", "env")
        if name is not None:
            env[name] = value or ""
    return env


def _gpus(
    reader: Reader, props: Mapping[str, object], path: str, env: Mapping[str, str]
) -> Iterator[GpuRequest]:
    resources, asked = reader.mapping(props.get("resources"), f"{path}.resources", "gpus"), False
    for section in ("limits", "requests"):
        found = reader.mapping(resources.get(section), f"{path}.resources.{section}", "gpus")
        for name, value in found.items():
            if _GPU_RESOURCE.match(name):
                at = f"{path}.resources.{section}[{name}]"
                count = reader.whole(value, at, "gpus")
                if count is not None:
                    asked = True
                    yield GpuRequest(path=at, count=count)
    # `void` keeps what needs no GPU from those of its node; where one is asked for it takes that away.
    if _VISIBLE in env and (asked or env[_VISIBLE] not in ("none", "void")):
        yield GpuRequest(path=f"{path}.env.{_VISIBLE}", ids=tuple(env[_VISIBLE].split(",")))
    context = reader.mapping(props.get("securityContext"), f"{path}.securityContext", "gpus")
    if reader.flag(context.get("privileged"), f"{path}.securityContext.privileged", "gpus"):
        yield GpuRequest(path=f"{path}.securityContext.privileged", ids=("all",))


def _limits(reader: Reader, props: Mapping[str, object], path: str, spec: Mapping[str, object]) -> Limits:
    at = f"{path}.resources"
    resources = reader.mapping(props.get("resources"), at, "memory")
    reader.mapping(props.get("resources"), at, "cpus")  # unknown as a whole, neither is known

    def amount(section: str, name: str) -> float | None:
        own = "cpus" if name == "cpu" else "memory"
        holder = reader.mapping(resources.get(section), f"{at}.{section}", own)
        return _amount(reader, holder.get(name), f"{at}.{section}.{name}", own)

    memory, request = amount("limits", "memory"), amount("requests", "memory")
    shm = _shared_memory(reader, props, spec)
    return Limits(
        memory_mib=None if memory is None else memory / _MIB,
        memory_request_mib=None if request is None else request / _MIB,
        shm_mib=None if shm is None else shm / _MIB,
        cpus=amount("limits", "cpu"),
    )


def _shared_memory(reader: Reader, props: Mapping[str, object], spec: Mapping[str, object]) -> float | None:
    """The size of what is mounted at /dev/shm, in bytes; None without one, or one without a size."""
    mounts = reader.objects(props.get("volumeMounts"), "volumeMounts", "memory")
    there = [item.get("name") for _, item in mounts if item.get("mountPath") == "/dev/shm"]  # noqa: S108
    for at, volume in reader.objects(spec.get("volumes"), "volumes", "memory"):
        if volume.get("name") in there and "emptyDir" in volume:
            held = reader.mapping(volume.get("emptyDir"), f"{at}.emptyDir", "memory")
            return _amount(reader, held.get("sizeLimit"), f"{at}.emptyDir.sizeLimit", "memory")
    return None


def _amount(reader: Reader, given: object, path: str, field_name: str) -> float | None:
    text = reader.text(given, path, field_name)
    if text is None:
        return None
    value = quantity(text)
    if value is None:
        reader.odd(text, path, field_name, "a quantity such as 512Mi")
    return value


def _host_ports(reader: Reader, props: Mapping[str, object], path: str) -> Iterator[Port]:
    for at, item in reader.objects(props.get("ports"), f"{path}.ports", "ports"):
        external = reader.whole(item.get("hostPort"), f"{at}.hostPort", "ports")
        if external:
            yield Port(
                path=f"{at}.hostPort",
                internal=reader.whole(item.get("containerPort"), f"{at}.containerPort", "ports") or 0,
                external=external,
                address=reader.text(item.get("hostIP"), f"{at}.hostIP", "ports") or "",
                protocol=(reader.text(item.get("protocol"), f"{at}.protocol", "ports") or "tcp").lower(),
            )


def _probe(reader: Reader, props: Mapping[str, object], path: str, name: str) -> Probe | None:
    if props.get(name) is None:
        return None
    at = f"{path}.{name}"
    found = reader.mapping(props.get(name), at, "probe")
    run = reader.mapping(found.get("exec"), f"{at}.exec", "probe")
    http = reader.mapping(found.get("httpGet"), f"{at}.httpGet", "probe")

    def number(key: str, default: float) -> float:
        value = reader.number(found.get(key), f"{at}.{key}", "probe")
        return default if value is None else value

    return Probe(
        command=reader.texts(run.get("command"), f"{at}.exec.command", "probe"),
        http_path=reader.text(http.get("path"), f"{at}.httpGet.path", "probe"),
        interval_s=number("periodSeconds", 10),
        timeout_s=number("timeoutSeconds", 1),
        start_period_s=number("initialDelaySeconds", 0),
        retries=int(number("failureThreshold", 3)),
    )
