"""least-privilege: nothing is root on its node, and a server writes to no model."""

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


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("privileged", "Privilege"),
        ("capabilities", "Privilege"),
        ("capabilities.adds", "Privilege"),
        ("securityOpts", "Privilege"),
        ("securityOpts[0]", "Privilege"),
        ("networkMode", "Privilege"),
        ("mounts", "Mount"),
        ("mounts[0].source", "Mount"),
        ("networksAdvanced[0].name", "Network"),
    ],
)
def test_what_is_not_known_in_preview_is_refused_by_resource(path: str, what: str) -> None:
    assert f"{what} of gpu0 is not known in preview: {path}" in judged(server().changed(path, UNKNOWN))
