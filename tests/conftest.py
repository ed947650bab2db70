"""What every tier shares: hypothesis profiles, and `deploy`, which runs a program on a mock engine."""

import pytest
from hypothesis import settings

from tests.mock_engine import Deploy, run_program
from toolchain.pulumi import ensure
from toolchain.tools import Toolchain

# The same examples on every run, nothing written to the checkout. `--hypothesis-profile=wide` looks further.
settings.register_profile("project", derandomize=True, database=None, deadline=None)
settings.register_profile("wide", database=None, deadline=None, max_examples=5000)
settings.load_profile("project")


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """The real Pulumi CLI with its Docker plugin."""
    return ensure(plugins=["docker"])


@pytest.fixture
def deploy() -> Deploy:
    """Run a program to its end against a mock engine, then hand back what the engine was asked for."""
    return run_program
