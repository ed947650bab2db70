"""One Docker Engine with our images and one Pulumi CLI for the whole run; a project for each module."""

import os
from collections.abc import Iterator
from ipaddress import IPv4Network

import pytest

from images.build import ensure_images
from ops.engine import PrivateEngine
from tests.integration.docker_cli import DockerCli
from tests.pulumi_project import Project
from toolchain.tools import Toolchain

SUBNET = "172.29.93.0/24"


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerCli]:
    engine = PrivateEngine(tmp_path_factory.mktemp("engine"), avoid=[IPv4Network(SUBNET)])
    engine.start()
    try:
        ensure_images(engine.docker_host)
        yield DockerCli(engine.docker_host)
    finally:
        engine.stop()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain, engine: DockerCli) -> Project:
    env = {**os.environ, "DOCKER_HOST": engine.docker_host}
    return Project(tmp_path_factory.mktemp("pulumi"), toolchain, env)
