"""The view of a Docker container, from the inputs of docker:index/container:Container."""

import re
from collections.abc import Iterator, Mapping
from typing import Literal
from urllib.parse import urlsplit

from pack.plain import UNKNOWN
from pack.reading import Reader, decoded
from pack.resource import Provider, Resource
from pack.workload import GpuRequest, Limits, Mount, Network, Port, Probe, Security, Workload

CONTAINER = "docker:index/container:Container"
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_GPU_DEVICE = re.compile(r"/dev/nvidia(\d+)$")
_MOUNT_KINDS: dict[str, Literal["bind", "volume", "tmpfs"]] = {
    "bind": "bind",
    "volume": "volume",
    "tmpfs": "tmpfs",
}
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def workload(resource: Resource) -> Workload:
    """The view; whatever the properties hold, it never throws."""
    reader, props = Reader(), resource.props
    env = _env(reader, props)
    security = _security(reader, props)
    runtime = reader.text(props.get("runtime"), "runtime", "gpus")
    return Workload(
        target="docker",
        resource=resource,
        name=reader.text(props.get("name"), "name", "name") or resource.name,
        machine=machine(resource.provider),
        props=props,
        image=reader.text(props.get("image"), "image", "image"),
        entrypoint=reader.texts(props.get("entrypoints"), "entrypoints", "command"),
        arguments=reader.texts(props.get("command"), "command", "command"),
        env=env,
        labels=_labels(reader, props),
        gpus=tuple(_gpus(reader, props, env, runtime)),
        runtime=runtime,
        limits=_limits(reader, props),
        ports=tuple(_ports(reader, props)),
        publishes_all_ports=bool(reader.flag(props.get("publishAllPorts"), "publishAllPorts", "ports")),
        mounts=tuple(_mounts(reader, props)),
        files=_files(reader, props),
        networks=tuple(_networks(reader, props)),
        security=security,
        probe=_probe(reader, props),
        restart=reader.text(props.get("restart"), "restart", "restart"),
        waits=reader.flag(props.get("wait"), "wait", "probe"),
        wait_timeout_s=reader.number(props.get("waitTimeout"), "waitTimeout", "probe"),
        stop_timeout_s=reader.number(props.get("stopTimeout"), "stopTimeout", "stop"),
        stop_signal=reader.text(props.get("stopSignal"), "stopSignal", "stop"),
        removal_grace_s=reader.number(props.get("destroyGraceSeconds"), "destroyGraceSeconds", "stop"),
        has_init=reader.flag(props.get("init"), "init", "stop"),
        unread={name: tuple(found) for name, found in reader.unread.items()},
    )


def machine(provider: Provider | None) -> str:
    """What tells one Docker host from another: two providers may reach the same one."""
    props = provider.props if provider else {}
    context, host = props.get("context"), props.get("host")
    if context is UNKNOWN or host is UNKNOWN:
        return provider.urn if provider else "default"
    if context:
        return f"context {context}"
    if not host:
        return "default"
    parts = urlsplit(str(host))
    name = (parts.hostname or "").lower()
    return "this machine" if parts.scheme == "unix" or name in ("localhost", "127.0.0.1", "::1") else name


def seconds(text: str) -> float | None:
    """Seconds of a duration as Docker writes it (`1m30s`), or None."""
    if not text or _SPAN.sub("", text):
        return None
    return sum(float(amount) * _SECONDS[unit] for amount, unit in _SPAN.findall(text))


def _env(reader: Reader, props: Mapping[str, object]) -> dict[str, str]:
    """The variables; of one that is given twice the last value."""
    pairs = (text.partition("=") for text in reader.texts(props.get("envs"), "envs", "env"))
    return {name: value for name, _, value in pairs}


def _labels(reader: Reader, props: Mapping[str, object]) -> dict[str, str]:
    return _texts_by_name(reader, props, "labels", keys=("label", "value"), field="labels")


def _gpus(
    reader: Reader, props: Mapping[str, object], env: Mapping[str, str], runtime: str | None
) -> Iterator[GpuRequest]:
    """Every way in which the container gets GPUs, whatever its labels say."""
    yield from _device_requests(reader, props)
    gpus = reader.text(props.get("gpus"), "gpus", "gpus")
    if gpus:
        yield _gpus_option(gpus)
    for at, item in reader.objects(props.get("devices"), "devices", "gpus"):
        host = reader.text(item.get("hostPath"), f"{at}.hostPath", "gpus") or ""
        if found := _GPU_DEVICE.search(host):
            yield GpuRequest(path=f"{at}.hostPath", ids=(found[1],))
        elif host.startswith("nvidia.com/"):
            yield GpuRequest(path=f"{at}.hostPath", ids=(host,))
        elif host.rstrip("/") == "/dev" or host.startswith("/dev/nvidia-caps"):
            yield GpuRequest(path=f"{at}.hostPath", ids=("all",))
    if reader.flag(props.get("privileged"), "privileged", "gpus"):
        yield GpuRequest(path="privileged", ids=("all",))
    yield from _by_variable(reader, env, runtime)


def _device_requests(reader: Reader, props: Mapping[str, object]) -> Iterator[GpuRequest]:
    for at, item in reader.objects(props.get("deviceRequests"), "deviceRequests", "gpus"):
        driver = reader.text(item.get("driver"), f"{at}.driver", "gpus") or ""
        capabilities = reader.texts(item.get("capabilities"), f"{at}.capabilities", "gpus")
        ids = reader.texts(item.get("deviceIds"), f"{at}.deviceIds", "gpus")
        count = reader.whole(item.get("count"), f"{at}.count", "gpus")
        of_others = driver == "cdi" and not any(name.startswith("nvidia.com/") for name in ids)
        if (driver not in ("nvidia", "cdi", "") and "gpu" not in capabilities) or (of_others and ids):
            continue
        if ids:
            yield GpuRequest(path=f"{at}.deviceIds", ids=ids)
        elif count == -1:
            yield GpuRequest(path=f"{at}.count", ids=("all",))
        elif driver == "nvidia" or "gpu" in capabilities:
            # Without a count the engine asks for none, and the image's own variable (`all`) stays in force.
            yield GpuRequest(path=f"{at}.count", count=count or 0)


def _gpus_option(text: str) -> GpuRequest:
    """`all`, `device=0,1`, or a bare number, which is a count and no index."""
    wanted = text.strip().strip("\"'")
    if wanted.isdecimal():
        return GpuRequest(path="gpus", count=int(wanted))
    ids = wanted.removeprefix("device=").split(",")
    return GpuRequest(path="gpus", ids=tuple(name.strip() for name in ids if name.strip()))


def _by_variable(reader: Reader, env: Mapping[str, str], runtime: str | None) -> Iterator[GpuRequest]:
    path = f"envs.{_VISIBLE}"
    if runtime == "nvidia":
        # Any variable that is not known may be the one that says which GPUs.
        reader.unread.setdefault("gpus", []).extend(reader.unread.get("env", ()))
    if _VISIBLE in env:
        ids = tuple(name.strip() for name in env[_VISIBLE].split(",") if name.strip())
        if ids and not set(ids) <= {"none", "void"}:
            yield GpuRequest(path=path, ids=ids)
    elif runtime == "nvidia":
        yield GpuRequest(path=f"runtime nvidia without {_VISIBLE}", ids=("all",))


def _limits(reader: Reader, props: Mapping[str, object]) -> Limits:
    def mib(name: str) -> float | None:
        return reader.number(props.get(name), name, "memory")

    return Limits(
        memory_mib=mib("memory"),
        memory_swap_mib=mib("memorySwap"),
        shm_mib=mib("shmSize"),
        cpu_set=reader.text(props.get("cpuSet"), "cpuSet", "cpus"),
        cpus=reader.number(props.get("cpus"), "cpus", "cpus"),
    )


def _ports(reader: Reader, props: Mapping[str, object]) -> Iterator[Port]:
    for at, item in reader.objects(props.get("ports"), "ports", "ports"):
        yield Port(
            path=at,
            internal=reader.whole(item.get("internal"), f"{at}.internal", "ports") or 0,
            external=reader.whole(item.get("external"), f"{at}.external", "ports") or 0,
            address=reader.text(item.get("ip"), f"{at}.ip", "ports") or "",
            protocol=reader.text(item.get("protocol"), f"{at}.protocol", "ports") or "tcp",
        )


def _mounts(reader: Reader, props: Mapping[str, object]) -> Iterator[Mount]:
    for at, item in reader.objects(props.get("mounts"), "mounts", "mounts"):
        kind = reader.text(item.get("type"), f"{at}.type", "mounts")
        device = _folder_of_the_node(reader, item, at)
        yield Mount(
            path=at,
            kind="bind" if device else _MOUNT_KINDS.get(kind or "", "other"),
            source=device or reader.text(item.get("source"), f"{at}.source", "mounts") or "",
            target=reader.text(item.get("target"), f"{at}.target", "mounts") or "",
            read_only=bool(reader.flag(item.get("readOnly"), f"{at}.readOnly", "mounts")),
        )
    for at, item in reader.objects(props.get("volumes"), "volumes", "mounts"):
        host = reader.text(item.get("hostPath"), f"{at}.hostPath", "mounts")
        volume = reader.text(item.get("volumeName"), f"{at}.volumeName", "mounts")
        yield Mount(
            path=at,
            kind="bind" if host else "volume",
            source=host or volume or "",
            target=reader.text(item.get("containerPath"), f"{at}.containerPath", "mounts") or "",
            read_only=bool(reader.flag(item.get("readOnly"), f"{at}.readOnly", "mounts")),
        )


def _folder_of_the_node(reader: Reader, mount: Mapping[str, object], path: str) -> str | None:
    """The folder behind a volume that is one of the node's under another name."""
    at = f"{path}.volumeOptions"
    options = reader.mapping(mount.get("volumeOptions"), at, "mounts")
    return bound_folder(reader, options.get("driverOptions"), f"{at}.driverOptions", "mounts")


def bound_folder(reader: Reader, driver_options: object, path: str, field: str) -> str | None:
    """What the options of a volume's driver bind (`type: none, o: bind, device: /srv`); None for others."""
    options = reader.mapping(driver_options, path, field)
    how = reader.text(options.get("o"), f"{path}.o", field) or ""
    device = reader.text(options.get("device"), f"{path}.device", field) or ""
    return device if device.startswith("/") and "bind" in how.split(",") else None


def _files(reader: Reader, props: Mapping[str, object]) -> dict[str, str]:
    """Texts of uploads. Of one by `source`, a file of the machine that runs Pulumi, none is shown."""
    plain = _texts_by_name(reader, props, "uploads", keys=("file", "content"), field="files")
    encoded = _texts_by_name(reader, props, "uploads", keys=("file", "contentBase64"), field="files")
    return {**{name: decoded(text) for name, text in encoded.items()}, **plain}


def _texts_by_name(
    reader: Reader, props: Mapping[str, object], path: str, *, keys: tuple[str, str], field: str
) -> dict[str, str]:
    """Of a list of objects: one member by the other, where both can be read."""
    found = {}
    for at, item in reader.objects(props.get(path), path, field):
        name, text = (reader.text(item.get(key), f"{at}.{key}", field) for key in keys)
        if name is not None and text is not None:
            found[name] = text
    return found


def _networks(reader: Reader, props: Mapping[str, object]) -> Iterator[Network]:
    for at, item in reader.objects(props.get("networksAdvanced"), "networksAdvanced", "networks"):
        yield Network(
            name=reader.text(item.get("name"), f"{at}.name", "networks") or "",
            address=reader.text(item.get("ipv4Address"), f"{at}.ipv4Address", "networks"),
        )


def _security(reader: Reader, props: Mapping[str, object]) -> Security:
    def said(name: str) -> str:
        return reader.text(props.get(name), name, "security") or ""

    capabilities = reader.mapping(props.get("capabilities"), "capabilities", "security")
    modes = {name: said(f"{name}Mode") for name in ("network", "pid", "ipc")}
    options = list(_security_options(reader, props))
    gains = [value for _, name, value in options if name == "no-new-privileges"]
    return Security(
        privileged=bool(reader.flag(props.get("privileged"), "privileged", "security")),
        host_network=modes["network"] == "host",
        host_pid=modes["pid"] == "host",
        host_ipc=modes["ipc"] == "host",
        host_users="usernsMode: host" if said("usernsMode") == "host" else None,
        joined={name: mode for name, mode in modes.items() if mode.startswith("container:")},
        unconfined=tuple(
            f"{path}: {name}={value}" for path, name, value in options if value in _UNCONFINED.get(name, ())
        ),
        user=reader.text(props.get("user"), "user", "security"),
        read_only_root=bool(reader.flag(props.get("readOnly"), "readOnly", "security")),
        no_new_privileges=gains[-1:] in ([""], ["true"]),  # the engine takes the last one
        capabilities_added=reader.texts(capabilities.get("adds"), "capabilities.adds", "security"),
        capabilities_dropped=reader.texts(capabilities.get("drops"), "capabilities.drops", "security"),
    )


# What switches off the engine's filter of system calls, its profile, SELinux, and the masks over /proc.
_UNCONFINED: Mapping[str, tuple[str, ...]] = {
    "seccomp": ("unconfined",),
    "apparmor": ("unconfined",),
    "systempaths": ("unconfined",),
    "label": ("disable", "type:spc_t"),
}


def _security_options(reader: Reader, props: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Where each one stands, its name and its value; `:` is the old way to write `=`."""
    for path, item in reader.items(props.get("securityOpts"), "securityOpts", "security"):
        text = reader.text(item, path, "security") or ""
        name, _, value = text.partition("=" if "=" in text else ":")
        yield path, name, value


def _probe(reader: Reader, props: Mapping[str, object]) -> Probe | None:
    if props.get("healthcheck") is None:
        return None
    found = reader.mapping(props.get("healthcheck"), "healthcheck", "probe")

    def span(name: str) -> float | None:
        path = f"healthcheck.{name}"
        text = reader.text(found.get(name), path, "probe")
        if text is None:
            return None
        value = seconds(text)
        if value is None:
            reader.odd(text, path, "probe", "a duration such as 1m30s")
        return value

    command = reader.texts(found.get("tests"), "healthcheck.tests", "probe")
    if command[:1] == ("NONE",) or not command:
        return None
    return Probe(
        command=command,
        interval_s=span("interval"),
        timeout_s=span("timeout"),
        start_period_s=span("startPeriod"),
        retries=reader.whole(found.get("retries"), "healthcheck.retries", "probe"),
    )
