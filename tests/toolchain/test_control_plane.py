"""The modules that the control plane is built from, as the go.mod files of the repository name them."""

import re

import pytest

from toolchain.control_plane import executable_name, kubernetes_version
from toolchain.versions import GO_MODULES

GO_MOD = (GO_MODULES / "kubernetes-control-plane" / "go.mod").read_text()


def test_every_staging_module_is_replaced_by_the_one_of_the_same_release() -> None:
    minor, patch = kubernetes_version().removeprefix("v1.").split(".")
    replaced = re.findall(r"^\s*(k8s\.io/\S+) => (\S+) (\S+)$", GO_MOD, flags=re.MULTILINE)
    assert len(replaced) == 31
    assert {(old == new, version) for old, new, version in replaced} == {(True, f"v0.{minor}.{patch}")}


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver"),
        ("go.etcd.io/etcd/server/v3", "server"),
        ("example.com/vault", "vault"),
    ],
)
def test_an_executable_is_named_by_its_package_and_never_by_a_major_version(package: str, name: str) -> None:
    assert executable_name(package) == name
