"""A project for previews that reach nothing of this machine."""

import os
from pathlib import Path

import pytest

from tests.pulumi_project import Project
from toolchain.tools import Toolchain

NOWHERE = "unix:///nonexistent/docker.sock"


@pytest.fixture
def project(tmp_path: Path, toolchain: Toolchain) -> Project:
    # No engine, no home of the user's: a preview that needs either fails.
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DOCKER_HOST": NOWHERE}
    return Project(tmp_path, toolchain, env)
