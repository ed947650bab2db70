"""The control plane by itself: what it is, that two live side by side, and that none is left behind."""

import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ops.cluster import Cluster
from ops.daemon import processes_with
from ops.errors import UserError
from ops.kube_api import ApiError, Json
from tests.cluster.reading import CORE
from tests.envoy.harness import wait_for
from toolchain import control_plane

pytestmark = [pytest.mark.integration, pytest.mark.cluster]


def test_it_says_the_version_that_its_modules_have(cluster: Cluster) -> None:
    assert cluster.api.get("/version")["gitVersion"] == control_plane.kubernetes_version()


def test_it_listens_on_the_loopback_alone(cluster: Cluster) -> None:
    port = int(cluster.kubeconfig.read_text().partition("https://127.0.0.1:")[2].partition('"')[0])
    table = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    listening = [line.split()[1] for line in table.splitlines() if f":{port:04X} " in line and " 0A " in line]
    assert listening == [f"{int.from_bytes(socket.inet_aton('127.0.0.1'), 'little'):08X}:{port:04X}"]


def test_a_stranger_and_a_pod_may_read_no_secret(cluster: Cluster) -> None:
    api = cluster.kubeconfig.read_text().partition('"server": "')[2].partition('"')[0]
    trusted = ssl.create_default_context(cafile=str(cluster.folder / "certificates" / "authority.crt"))
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{api}{CORE}/secrets", context=trusted, timeout=10)  # noqa: S310
    review: Json = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "system:serviceaccount:default:default",
            "resourceAttributes": {"namespace": "default", "verb": "list", "resource": "secrets"},
        },
    }
    status = cluster.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]
    assert status["allowed"] is False


def test_a_second_one_has_nothing_of_the_first_and_leaves_no_process(
    cluster: Cluster, tmp_path: Path
) -> None:
    with Cluster(tmp_path / "second") as second:
        second.add_nodes("only-in-second", gpus=1)
        assert second.runs()
        with pytest.raises(ApiError, match="404"):
            cluster.api.get("/api/v1/nodes/only-in-second")
        assert len(processes_with(f"{second.folder}/")) == 5
    assert processes_with(f"{second.folder}/") == []
    assert not second.folder.exists()
    assert cluster.runs()


def test_started_again_it_has_what_it_had(tmp_path: Path) -> None:
    first = Cluster(tmp_path)
    first.start()
    try:
        first.add_nodes("kept", gpus=1)
        first.stop()
        assert processes_with(f"{first.folder}/") == []
        again = Cluster(tmp_path)
        again.start()
        assert again.api.get("/api/v1/nodes/kept")["kind"] == "Node"
    finally:
        first.remove()


def test_one_that_cannot_start_shows_the_end_of_its_log_and_leaves_no_process(tmp_path: Path) -> None:
    broken = Cluster(tmp_path)
    (tmp_path / "etcd").write_text("a file where a folder is due")
    with pytest.raises(UserError, match=r"(?s)etcd ended at once.*etcd\.log:\n  .*etcd"):
        broken.start()
    assert processes_with(f"{broken.folder}/") == []


def test_a_jobs_pod_succeeds_unless_its_image_crashes(cluster: Cluster) -> None:
    cluster.add_nodes("jobs", gpus=0)
    for name, image in (("does", "r/works:1"), ("does-not", "r/crashes:1")):
        pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": image}]}
        pod["nodeName"] = "jobs"
        job: Json = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}},
        }
        cluster.api.create("/apis/batch/v1/namespaces/default/jobs", job)
    wait_for("one is done", lambda: conditions(cluster, "does") >= {"Complete"})
    wait_for("the other failed", lambda: conditions(cluster, "does-not") >= {"Failed"})


def conditions(cluster: Cluster, job: str) -> set[str]:
    status = cluster.api.get(f"/apis/batch/v1/namespaces/default/jobs/{job}").get("status", {})
    return {condition["type"] for condition in status.get("conditions", [])}
