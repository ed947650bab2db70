"""One control plane for the whole run, and a program with a state of its own for each test."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.cluster import CONTEXT, Cluster
from tests.cluster.program import Program
from toolchain.pulumi import ensure
from toolchain.tools import Toolchain


@pytest.fixture(scope="session")
def kubernetes_toolchain() -> Toolchain:
    """The real Pulumi CLI with the Kubernetes provider."""
    return ensure(plugins=["docker", "kubernetes"])


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # A folder with a space: every path that a program is given must be one argument.
    with Cluster(tmp_path_factory.mktemp("cluster") / "of all tests") as started:
        yield started


@pytest.fixture
def program(tmp_path: Path, kubernetes_toolchain: Toolchain) -> Program:
    # No kubeconfig of the user's, from neither the environment nor the home folder.
    return Program(tmp_path, kubernetes_toolchain, {"PATH": os.environ["PATH"], "HOME": str(tmp_path)})


@pytest.fixture
def provider(cluster: Cluster) -> dict[str, object]:
    """What the provider is given to reach the cluster."""
    return {"kubeconfig": str(cluster.kubeconfig), "context": CONTEXT}
