"""The Envoy binary, for every test here."""

from pathlib import Path

import pytest

from images import envoy


@pytest.fixture(scope="session")
def envoy_binary() -> Path:
    """The real Envoy."""
    return envoy.envoy_binary()
