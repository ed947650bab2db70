"""A Kubernetes cluster of our own: a real control plane on the loopback, with nodes that kwok plays."""

import json
import os
import random
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from types import TracebackType

from ops import cluster_nodes
from ops.cluster_certificates import Certificates
from ops.daemon import Daemon
from ops.errors import UserError
from ops.kube_api import ApiError, Json, KubeApi
from toolchain import control_plane

CONTEXT = "tf-serving-cluster"
_STAGES = Path(__file__).with_name("cluster_stages.yaml")
_PORTS = range(15000, 30000)
# In the order of their start; they are stopped in the opposite one.
_PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
# Of TEST-NET-1: without one that is not loopback, an API server on a machine without a network doesn't start.
_ADVERTISED = "192.0.2.1"
_START_ATTEMPTS = 3
_PATIENCE_S = 180.0


class Cluster:
    """A control plane kept under `folder`; several run side by side, each on ports of its own.

    Use it in a `with` statement, or `start` it and `remove` it. Nothing but what kwok does stands for a
    kubelet: no container runs, so no probe, no preStop hook, no network policy and no CPU manager is at work.
    There is no metrics server either: an autoscaler keeps its minimum and says that it has no metrics.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.kubeconfig = self.folder / "kubeconfig"
        self._certificates = Certificates(self.folder / "certificates")
        self._daemons = {name: self._daemon(name) for name in _PROGRAMS}

    def __enter__(self) -> "Cluster":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    @property
    def api(self) -> KubeApi:
        """The API server, as a user who may do everything; it must have been started."""
        own = self._certificates
        tls = ssl.create_default_context(cafile=str(own.authority))
        tls.load_cert_chain(own.certificate("admin"), own.key("admin"))
        return KubeApi(f"https://127.0.0.1:{self._ports()['api']}", tls)

    def runs(self) -> bool:
        """Whether every program of it runs and its API server is ready."""
        return all(daemon.pid() is not None for daemon in self._daemons.values()) and self.api.ready()

    def start(self) -> None:
        """Start it where it does not run and wait until pods could be made; what is in it is kept.

        Raises UserError with the end of a log where a program ends or is not ready in time, ToolchainError
        where one can't be built.
        """
        if self.runs():
            return
        programs = control_plane.ensure()
        self.stop()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._certificates.make()
        for attempt in count(1):
            (self.folder / "ports.json").write_text(json.dumps(_free_ports("api", "etcd", "etcd-peer")))
            self._write_kubeconfigs()
            try:
                self._start_programs(programs)
            except UserError as error:
                self.stop()
                # Somebody may have taken a port between our look and the bind.
                if attempt == _START_ATTEMPTS or "address already in use" not in str(error):
                    raise
            else:
                return

    def stop(self) -> None:
        """Stop its programs; what is in it stays. Does nothing where none runs."""
        for name in reversed(_PROGRAMS):
            self._daemons[name].stop(grace_s=10)

    def remove(self) -> None:
        """Stop it and delete its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def add_nodes(
        self,
        *names: str,
        gpus: int,
        product: str = cluster_nodes.A100,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[str] = (),
        resource: str = "nvidia.com/gpu",
    ) -> None:
        """Add nodes (`cluster_nodes.node` says what each has) and wait until pods can be placed on them."""
        for name in names:
            node = cluster_nodes.node(
                name, gpus=gpus, product=product, labels=labels, taints=taints, resource=resource
            )
            self.api.create("/api/v1/nodes", node)
        path = "/api/v1/nodes"
        self._wait_for(
            f"nodes {', '.join(names)} are ready",
            lambda: all(cluster_nodes.is_ready(self.api.get(f"{path}/{name}")) for name in names),
            "kwok",
        )

    def _daemon(self, name: str) -> Daemon:
        # Every program is given a file below this folder, and no other cluster's program is.
        pid_file, log = self.folder / f"{name}.pid", self.folder / f"{name}.log"
        return Daemon(program=name, mark=f"{self.folder}/", pid_file=pid_file, log=log)

    def _ports(self) -> dict[str, int]:
        ports: dict[str, int] = json.loads((self.folder / "ports.json").read_text())
        return ports

    def _start_programs(self, programs: Mapping[str, Path]) -> None:
        self._launch("etcd", programs, self._etcd_arguments())
        self._launch("kube-apiserver", programs, self._apiserver_arguments())
        self._wait_for("the API server is ready", self.api.ready, "etcd", "kube-apiserver")
        self._launch("kube-controller-manager", programs, self._controller_arguments())
        self._launch("kube-scheduler", programs, self._config_of("kube-scheduler", "--leader-elect=false"))
        self._launch("kwok", programs, self._kwok_arguments())
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._wait_for(
            "the default service account is made", lambda: self._has(account), "kube-controller-manager"
        )

    def _launch(self, name: str, programs: Mapping[str, Path], arguments: Sequence[str]) -> None:
        # Of the caller's environment nothing but PATH: a proxy or a KUBECONFIG is none of theirs.
        path = os.pathsep.join([str(programs[name].parent), os.environ.get("PATH", os.defpath)])
        self._daemons[name].start(arguments, {"PATH": path, "HOME": str(self.folder)})

    def _etcd_arguments(self) -> list[str]:
        client = f"https://127.0.0.1:{self._ports()['etcd']}"
        peer = f"http://127.0.0.1:{self._ports()['etcd-peer']}"
        return [
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # Who may write to etcd may do everything in the cluster.
            "--client-cert-auth",
            f"--trusted-ca-file={self._certificates.authority}",
            f"--cert-file={self._certificates.certificate('etcd')}",
            f"--key-file={self._certificates.key('etcd')}",
            "--unsafe-no-fsync",  # nothing in it is worth waiting for a disk
            "--log-level=warn",
        ]

    def _apiserver_arguments(self) -> list[str]:
        own, ports = self._certificates, self._ports()
        return [
            "--bind-address=127.0.0.1",
            f"--secure-port={ports['api']}",
            f"--advertise-address={_ADVERTISED}",
            "--endpoint-reconciler-type=none",
            f"--etcd-servers=https://127.0.0.1:{ports['etcd']}",
            f"--etcd-cafile={own.authority}",
            f"--etcd-certfile={own.certificate('etcd-client')}",
            f"--etcd-keyfile={own.key('etcd-client')}",
            f"--tls-cert-file={own.certificate('kube-apiserver')}",
            f"--tls-private-key-file={own.key('kube-apiserver')}",
            f"--client-ca-file={own.authority}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={own.service_account_key}",
            f"--service-account-key-file={own.service_account_public}",
            "--service-cluster-ip-range=10.96.0.0/16",
        ]

    def _controller_arguments(self) -> list[str]:
        return self._config_of(
            "kube-controller-manager",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--root-ca-file={self._certificates.authority}",
            f"--service-account-private-key-file={self._certificates.service_account_key}",
            # A busy machine may be late with a heartbeat; nodes must not go away for that.
            "--node-monitor-grace-period=3m",
            "--horizontal-pod-autoscaler-sync-period=2s",
        )

    def _config_of(self, name: str, *options: str) -> list[str]:
        # No port of their own: whether they work shows in the API.
        return [f"--kubeconfig={self._kubeconfig_of(name)}", "--secure-port=0", *options]

    def _kwok_arguments(self) -> list[str]:
        return [
            f"--kubeconfig={self._kubeconfig_of('kwok')}",
            f"--config={_STAGES}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=40",
            "--node-ip=192.0.2.2",
        ]

    def _kubeconfig_of(self, user: str) -> Path:
        return self.kubeconfig if user == "admin" else self.folder / f"{user}.kubeconfig"

    def _write_kubeconfigs(self) -> None:
        for user in ("admin", "kwok", "kube-scheduler", "kube-controller-manager"):
            self._kubeconfig_of(user).write_text(json.dumps(self._config(user), indent=2) + "\n")
            self._kubeconfig_of(user).chmod(0o600)

    def _config(self, user: str) -> Json:
        own = self._certificates
        server = {
            "server": f"https://127.0.0.1:{self._ports()['api']}",
            "certificate-authority": str(own.authority),
        }
        identity = {"client-certificate": str(own.certificate(user)), "client-key": str(own.key(user))}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": CONTEXT, "cluster": server}],
            "users": [{"name": user, "user": identity}],
            "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user}}],
            "current-context": CONTEXT,
        }

    def _has(self, path: str) -> bool:
        try:
            self.api.get(path)
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return True

    def _wait_for(self, what: str, condition: Callable[[], bool], *needed: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            for name in needed:
                if self._daemons[name].pid() is None:
                    raise UserError(f"{name} ended at once.{self._log_of(name)}")
            if time.monotonic() > deadline:
                logs = "".join(self._log_of(name) for name in needed)
                raise UserError(f"Waited {_PATIENCE_S:.0f} s until {what}, in vain.{logs}")
            time.sleep(0.05)

    def _log_of(self, name: str) -> str:
        daemon = self._daemons[name]
        return f"\nThe end of {daemon.log}:\n{daemon.log_tail()}"


def _free_ports(*names: str) -> dict[str, int]:
    """Ports of the loopback that nobody listens on now, all different, chosen by chance."""
    with ExitStack() as held:
        return {name: next(_bound(held)) for name in names}


def _bound(held: ExitStack) -> Iterator[int]:
    while True:
        candidate = random.choice(_PORTS)  # noqa: S311 - no secret
        listener = held.enter_context(socket.socket())
        try:
            listener.bind(("127.0.0.1", candidate))
        except OSError:
            continue
        yield candidate
