"""What a cluster of our own is made of, without one that runs."""

import json
import subprocess
from pathlib import Path

import pytest

from ops import cluster_certificates
from ops.cluster import Cluster
from ops.cluster_certificates import Certificates
from ops.cluster_nodes import is_ready, node
from ops.errors import UserError


def test_a_node_offers_its_gpus_under_the_name_that_pods_ask_for() -> None:
    mig = node("a", gpus=7, resource="nvidia.com/mig-1g.10gb", taints=["nvidia.com/gpu=present:NoSchedule"])
    assert mig["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] == "7"
    assert "nvidia.com/gpu" not in mig["status"]["capacity"]
    assert mig["spec"]["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]


def test_a_node_without_gpus_has_no_label_of_nvidias() -> None:
    assert not [label for label in node("a", gpus=0)["metadata"]["labels"] if label.startswith("nvidia")]


def test_a_node_is_ready_once_the_controllers_have_seen_its_heartbeat() -> None:
    seen = node("a", gpus=1)
    assert not is_ready(seen)
    seen["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert is_ready(seen)
    seen["spec"]["taints"] = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert not is_ready(seen)


def test_certificates_are_signed_by_the_clusters_own_authority_and_kept_from_others(tmp_path: Path) -> None:
    made = Certificates(tmp_path / "certificates")
    made.make()
    assert made.folder.stat().st_mode & 0o777 == 0o700
    for name in (*cluster_certificates.USERS, "kube-apiserver", "etcd"):
        verified = ["openssl", "verify", "-CAfile", str(made.authority), str(made.certificate(name))]
        assert subprocess.run(verified, capture_output=True, check=False).returncode == 0, name
    before = made.authority.read_bytes()
    Certificates(made.folder).make()
    assert made.authority.read_bytes() == before


def test_without_openssl_one_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="apt-get install openssl"):
        Certificates(tmp_path / "certificates").make()


def test_one_that_was_never_started_does_not_run_and_is_stopped_without_complaint(tmp_path: Path) -> None:
    never = Cluster(tmp_path / "never")
    assert not never.runs()
    never.remove()
    assert not never.folder.exists()


def test_a_pid_of_another_process_is_not_taken_for_one_of_its_programs(tmp_path: Path) -> None:
    stranger = Cluster(tmp_path)
    (tmp_path / "etcd.pid").write_text("1\n")
    (tmp_path / "ports.json").write_text(json.dumps({"api": 1, "etcd": 2, "etcd-peer": 3}))
    assert not stranger.runs()
    stranger.stop()
    assert Path("/proc/1").exists()
