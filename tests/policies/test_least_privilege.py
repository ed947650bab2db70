"""least-privilege: nothing is root on its node, and a server writes to no model."""

import re
from dataclasses import replace

import pytest

from tests.policies.good import UNKNOWN, Declared, deployment, exporter, front_end, publisher, server
from tests.policies.judge import messages, violations

RULE = "least-privilege"
SPEC = "spec.template.spec"
CONTAINER = f"{SPEC}.containers[0]"
SOCKETS = (
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
)


def judged(*declared: Declared, **config: object) -> str:
    return "\n".join(messages(RULE, *declared, environment="prod", **config))


def mounted(source: str, target: str, *, read_only: bool, kind: str = "bind") -> Declared:
    mount = {"type": kind, "source": source, "target": target, "readOnly": read_only}
    return server().changed("mounts[1]", mount)


def test_containers_with_the_least_are_accepted() -> None:
    assert violations(RULE, server(), front_end(), publisher(), exporter(), deployment()) == []


@pytest.mark.parametrize("declared", [server(), front_end(), publisher()], ids=lambda declared: declared.name)
def test_nothing_is_privileged(declared: Declared) -> None:
    found = violations(RULE, declared.changed("privileged", True))[0]
    assert found.resource == declared.name
    assert found.message.startswith(f"{declared.name}: privileged: true: it is root on its node")
    assert "Fix: remove it" in found.message


def test_a_server_is_on_no_network_of_its_node() -> None:
    assert "gpu0: network: host" in judged(server().changed("networkMode", "host"))
    assert "gpu0: network: host" in judged(server().changed("networksAdvanced[1]", {"name": "host"}))
    assert judged(exporter().changed("networkMode", "host")) == ""


@pytest.mark.parametrize(("mode", "name"), [("pidMode", "pid"), ("ipcMode", "ipc")])
def test_nothing_reaches_other_programs_of_its_node(mode: str, name: str) -> None:
    assert f"gpu0: {name}: host: it reaches other programs" in judged(server().changed(mode, "host"))
    assert f"dcgm: {name}: host" in judged(exporter().changed(mode, "host"))
    assert judged(server().changed(mode, "private")) == ""


def test_capabilities_beyond_the_list_are_refused() -> None:
    found = judged(server().changed("capabilities.adds", ["CAP_SYS_ADMIN", "CAP_CHOWN"]))
    assert "gpu0: capabilities added: CAP_SYS_ADMIN: allowed are CAP_CHOWN" in found
    assert judged(publisher().changed("capabilities.adds", ["CAP_CHOWN"])) == ""
    assert judged(publisher().changed("capabilities.adds", ["chown"])) == ""
    assert "CAP_CHOWN: allowed are none" in judged(
        publisher().changed("capabilities.adds", ["CAP_CHOWN"]), allowedCapabilities=[]
    )
    allowed = ["NET_BIND_SERVICE"]
    bound = front_end().changed("capabilities.adds", ["CAP_NET_BIND_SERVICE"])
    assert judged(bound, allowedCapabilities=allowed) == ""


@pytest.mark.parametrize("kind", ["network", "pid", "ipc"])
def test_nothing_joins_the_namespaces_of_another_container(kind: str) -> None:
    joining = {f"{kind}Mode": "container:envoy"}
    for declared in (server(), front_end(), publisher(), exporter()):
        found = judged(replace(declared, props={**declared.props, **joining}))
        assert f"{declared.name}: {kind}: container:envoy: it " in found
        assert f"Fix: remove the {kind} mode" in found
    debugger = exporter().labelled(exempt=f"one-model-per-gpu,{RULE}")
    assert judged(replace(debugger, props={**debugger.props, **joining})) == ""


def test_root_in_a_container_is_not_root_on_its_node() -> None:
    for declared in (server(), publisher(), exporter()):
        found = judged(declared.changed("usernsMode", "host"))
        assert f"{declared.name}: usernsMode: host: root in it is root on its node" in found
        assert "Fix: remove it" in found
    assert judged(server().changed("usernsMode", "")) == ""
    pod = judged(deployment().changed(f"{SPEC}.hostUsers", True))
    assert f"main/server: {SPEC}.hostUsers: true: root in it is root on its node" in pod
    assert judged(deployment().changed(f"{SPEC}.hostUsers", False)) == ""


@pytest.mark.parametrize(
    "option",
    [
        "seccomp=unconfined",
        "seccomp:unconfined",
        "apparmor=unconfined",
        "apparmor:unconfined",
        "systempaths=unconfined",
        "label=disable",
        "label:disable",
        "label=type:spc_t",
        "label:type:spc_t",
    ],
)
def test_nothing_takes_its_confinement_off(option: str) -> None:
    for declared in (server(), front_end(), publisher(), exporter()):
        found = judged(declared.changed("securityOpts[1]", option))
        name, value = re.split("[=:]", option, maxsplit=1)
        assert f"{declared.name}: securityOpts[1]: {name}={value}: it may ask anything of the kernel" in found
        assert "Fix: remove it" in found
    agent = exporter().changed("securityOpts[1]", option)
    assert judged(agent.labelled(exempt=f"one-model-per-gpu,{RULE}")) == ""


@pytest.mark.parametrize(
    "option",
    ["seccomp=profile.json", "apparmor=docker-default", "label=level:s0:c1", "label=user:unconfined"],
)
def test_a_profile_of_ones_own_is_accepted(option: str) -> None:
    assert judged(server().changed("securityOpts[1]", option)) == ""


def test_of_two_options_about_privileges_the_last_counts_as_in_the_engine() -> None:
    both = ["no-new-privileges:true", "no-new-privileges:false"]
    assert "no-new-privileges is not set" in judged(server().changed("securityOpts", both))
    assert judged(server().changed("securityOpts", both[::-1])) == ""
    for said in ("no-new-privileges", "no-new-privileges=true"):
        assert judged(server().changed("securityOpts", [said])) == ""


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            f"{CONTAINER}.securityContext.seccompProfile",
            {"type": "Unconfined"},
            "seccompProfile.type: Unconfined",
        ),
        (
            f"{SPEC}.securityContext",
            {"seccompProfile": {"type": "Unconfined"}},
            "seccompProfile.type: Unconfined",
        ),
        (
            f"{CONTAINER}.securityContext.appArmorProfile",
            {"type": "Unconfined"},
            "appArmorProfile.type: Unconfined",
        ),
        (
            f"{SPEC}.securityContext",
            {"appArmorProfile": {"type": "Unconfined"}},
            "appArmorProfile.type: Unconfined",
        ),
        (f"{CONTAINER}.securityContext.seLinuxOptions", {"type": "spc_t"}, "seLinuxOptions.type: spc_t"),
        (f"{CONTAINER}.securityContext.procMount", "Unmasked", "procMount: Unmasked"),
    ],
)
def test_a_pod_keeps_its_confinement(path: str, value: object, said: str) -> None:
    pod = deployment().changed(path, value)
    where = f"{CONTAINER}.securityContext" if path.startswith(CONTAINER) else f"{SPEC}.securityContext"
    assert f"main/server: {where}.{said}: it may ask anything of the kernel" in judged(pod)


def test_what_a_container_says_of_its_confinement_holds_and_not_what_its_pod_says() -> None:
    pod = deployment().changed(f"{SPEC}.securityContext", {"seccompProfile": {"type": "Unconfined"}})
    own = pod.changed(f"{CONTAINER}.securityContext.seccompProfile", {"type": "RuntimeDefault"})
    assert judged(own) == ""


def test_the_annotation_that_takes_a_profile_off_is_seen() -> None:
    name = "container.apparmor.security.beta.kubernetes.io"
    template = "spec.template.metadata.annotations"
    assert f"annotation {name}/server: unconfined" in judged(
        deployment().changed(template, {f"{name}/server": "unconfined"})
    )
    assert judged(deployment().changed(template, {f"{name}/server": "runtime/default"})) == ""
    assert judged(deployment().changed(template, {f"{name}/other": "unconfined"})) == ""


@pytest.mark.parametrize("options", [None, [], ["no-new-privileges:false"], ["seccomp=default.json"]])
def test_no_program_gains_privileges(options: list[str] | None) -> None:
    for declared in (server(), front_end(), publisher(), exporter()):
        found = judged(declared.changed("securityOpts", options))
        assert f"{declared.name}: securityOpts: no-new-privileges is not set" in found
        assert "Fix: add no-new-privileges:true to securityOpts" in found


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("source", [*SOCKETS, "/", "/var/run", "/run/containerd", "/var"])
def test_no_container_reaches_the_engine_not_even_read_only(source: str, read_only: bool) -> None:
    found = judged(mounted(source, "/host", read_only=read_only))
    assert f"gpu0: mounts[1]: {source}: whoever reaches the engine's socket" in found


@pytest.mark.parametrize(
    "source",
    [
        "/var/run/../run/docker.sock",
        "/srv/../run/./docker.sock",
        "//run//docker.sock",
        "/run/docker.sock/",
        "/srv/..",
        "/run/user/1000/docker.sock",
        "/run/k3s/containerd/containerd.sock",
    ],
)
def test_the_engines_socket_is_seen_however_it_is_written(source: str) -> None:
    found = judged(mounted(source, "/host", read_only=True))
    assert f"gpu0: mounts[1]: {source}: whoever reaches the engine's socket" in found
    assert judged(mounted("/run/../srv/docker.socks", "/models/more", read_only=True)) == ""


BOUND = {"type": "none", "o": "ro,bind", "device": "/var/run"}


def test_a_volume_may_have_the_name_of_a_socket() -> None:
    assert judged(mounted("docker.sock", "/models/more", read_only=True, kind="volume")) == ""


def test_the_engines_socket_is_seen_behind_a_volume() -> None:
    agent = {"type": "volume", "source": "engine", "target": "/host", "readOnly": True}
    there = exporter().changed("mounts", [{**agent, "volumeOptions": {"driverOptions": BOUND}}])
    assert "dcgm: mounts[0]: /var/run: whoever reaches the engine's socket" in judged(there)
    volume = Declared(type="docker:index/volume:Volume", name="engine", props={"driverOpts": BOUND})
    [found] = violations(RULE, volume)
    assert found.resource == "engine"
    assert found.message.startswith(
        "engine: driverOpts.device: /var/run: whoever reaches the engine's socket"
    )


@pytest.mark.parametrize(
    "options",
    [
        {**BOUND, "device": "/srv/models"},
        {"type": "nfs", "o": "addr=nas,ro", "device": "/var/run"},
        {"type": "none", "o": "bind"},
        {},
    ],
)
def test_a_volume_of_another_kind_is_accepted(options: dict[str, str]) -> None:
    assert (
        judged(Declared(type="docker:index/volume:Volume", name="data", props={"driverOpts": options})) == ""
    )


@pytest.mark.parametrize(
    "declared", [front_end(), publisher(), exporter()], ids=lambda declared: declared.name
)
def test_nothing_writes_to_folders_of_its_node(declared: Declared) -> None:
    mount = {"type": "bind", "source": "/etc", "target": "/host/etc", "readOnly": False}
    found = judged(declared.changed("mounts", [mount]))
    assert f"{declared.name}: mounts[0]: /etc -> /host/etc: it could change files of its node" in found
    assert "Fix: mount it read-only (readOnly: true)" in found
    assert judged(declared.changed("mounts", [{**mount, "readOnly": True}])) == ""
    assert judged(declared.changed("mounts", [{**mount, "type": "volume", "source": "etc"}])) == ""
    assert judged(declared.changed("mounts", [mount]), writableHostFolders=["/srv", "/etc"]) == ""
    assert judged(declared.changed("mounts", [mount]), writableHostFolders=["/etc/some", "/et"]) != ""


def test_a_server_writes_to_no_folder_of_its_node_wherever_it_is_mounted() -> None:
    scratch = mounted("/srv/scratch", "/tmp/work", read_only=False)  # noqa: S108
    assert "gpu0: mounts[1]: /srv/scratch -> /tmp/work: it could change files of its node" in judged(scratch)
    assert judged(scratch, writableHostFolders=["/srv/scratch"]) == ""
    out = mounted("scratch", "/tmp/../models/more", read_only=False, kind="volume")  # noqa: S108
    assert "a server could change its models" in judged(out)


def test_a_pod_writes_to_no_folder_of_its_node() -> None:
    mount = {"name": "logs", "mountPath": "/logs"}
    agent = {"name": "agent", "image": "agent:1.0.0", "securityContext": {"allowPrivilegeEscalation": False}}
    pod = (
        deployment()
        .changed("spec.template.metadata.labels", {})
        .changed(f"{SPEC}.volumes", [{"name": "logs", "hostPath": {"path": "/var/log"}}])
    )
    found = judged(pod.changed(CONTAINER, {**agent, "volumeMounts": [mount]}))
    assert f"main/agent: {CONTAINER}.volumeMounts[0]: /var/log -> /logs: it could change files" in found
    assert judged(pod.changed(CONTAINER, {**agent, "volumeMounts": [{**mount, "readOnly": True}]})) == ""


def test_the_engines_socket_is_seen_in_volumes_as_well() -> None:
    volume = {"hostPath": "/var/run/docker.sock", "containerPath": "/var/run/docker.sock"}
    assert "dcgm: volumes[0]: /var/run/docker.sock" in judged(exporter().changed("volumes", [volume]))


@pytest.mark.parametrize("kind", ["bind", "volume"])
def test_a_server_writes_to_no_mount(kind: str) -> None:
    found = judged(mounted("/srv/more", "/models/more", read_only=False, kind=kind))
    assert "gpu0: mounts[1]: /srv/more -> /models/more: a server could change its models" in found
    assert "Fix: mount it read-only (readOnly: true)" in found
    assert judged(mounted("/srv/more", "/models/more", read_only=True, kind=kind)) == ""


def test_a_server_may_write_where_the_configuration_says() -> None:
    cache = mounted("xla", "/cache/xla", read_only=False, kind="volume")
    assert judged(cache) != ""
    assert judged(cache, writableFolders=["/cache"]) == ""
    assert judged(mounted("scratch", "/tmp/work", read_only=False, kind="volume")) == ""  # noqa: S108
    assert judged(mounted("", "/anywhere", read_only=False, kind="tmpfs")) == ""


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (f"{CONTAINER}.securityContext.privileged", True, "privileged: true"),
        (f"{SPEC}.hostNetwork", True, "network: host"),
        (f"{SPEC}.hostPID", True, "pid: host"),
        (f"{SPEC}.hostIPC", True, "ipc: host"),
        (
            f"{CONTAINER}.securityContext.capabilities",
            {"add": ["SYS_ADMIN"]},
            "capabilities added: SYS_ADMIN",
        ),
        (
            f"{CONTAINER}.securityContext.allowPrivilegeEscalation",
            True,
            "allowPrivilegeEscalation: not false",
        ),
        (f"{CONTAINER}.securityContext", None, "allowPrivilegeEscalation: not false"),
    ],
)
def test_pods_are_judged_alike(path: str, value: object, said: str) -> None:
    assert f"main/server: {said}" in judged(deployment().changed(path, value)).replace("securityContext.", "")


@pytest.mark.parametrize(
    ("volume", "refused"),
    [
        ({"hostPath": {"path": "/srv/models"}}, True),
        ({"persistentVolumeClaim": {"claimName": "models"}}, True),
        ({"persistentVolumeClaim": {"claimName": "models", "readOnly": True}}, False),
        ({"nfs": {"server": "nas", "path": "/models", "readOnly": True}}, False),
        ({"configMap": {"name": "files"}}, False),
        ({"emptyDir": {"medium": "Memory"}}, False),
    ],
)
def test_a_pod_mounts_models_read_only(volume: dict[str, object], refused: bool) -> None:
    pod = deployment().changed(f"{SPEC}.volumes", [{"name": "models", **volume}])
    mount = {"name": "models", "mountPath": "/models"}
    mounting = pod.changed(f"{CONTAINER}.volumeMounts", [mount])
    assert ("a server could change its models" in judged(mounting)) is refused
    assert judged(pod.changed(f"{CONTAINER}.volumeMounts", [{**mount, "readOnly": True}])) == ""


def test_a_pod_does_not_reach_the_engine() -> None:
    volume = {"name": "engine", "hostPath": {"path": "/run/containerd"}}
    mount = {"name": "engine", "mountPath": "/host", "readOnly": True}
    pod = deployment().changed(f"{SPEC}.volumes", [volume]).changed(f"{CONTAINER}.volumeMounts", [mount])
    assert "/run/containerd: whoever reaches the engine's socket" in judged(pod)


def test_only_what_is_no_model_server_is_exempt() -> None:
    agent = exporter().changed("capabilities", {"adds": ["CAP_SYS_ADMIN"]})
    assert "or the label tf-serving.exempt: least-privilege" in judged(agent)
    assert judged(agent.labelled(exempt=f"one-model-per-gpu,{RULE}")) == ""
    assert judged(server().changed("privileged", True).labelled(exempt=RULE)) != ""
    assert "tf-serving.exempt" not in judged(server().changed("ipcMode", "host"))


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("privileged", "Privilege"),
        ("capabilities", "Privilege"),
        ("capabilities.adds", "Privilege"),
        ("securityOpts", "Privilege"),
        ("securityOpts[0]", "Privilege"),
        ("networkMode", "Privilege"),
        ("pidMode", "Privilege"),
        ("usernsMode", "Privilege"),
        ("mounts", "Mount"),
        ("mounts[0].source", "Mount"),
        ("networksAdvanced[0].name", "Network"),
    ],
)
def test_what_is_not_known_in_preview_is_refused_by_resource(path: str, what: str) -> None:
    found = judged(server().changed(path, UNKNOWN))
    assert f"{what} of gpu0 is not known in preview: {path}" in found
    assert "is not set" not in found  # it may be
