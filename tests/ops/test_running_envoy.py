import io
import tarfile
from dataclasses import dataclass

import pytest

from ops.hosts import Host, Result
from ops.inspection import Container
from ops.running_envoy import of_publisher

WANTED = "envoy:v1.40.0\n65\n-c\n/config/bootstrap-1.yaml\n"
PUBLISHER = Container("prod.envoy-publisher", "gpu-01", "c", files={"/publish/then/envoy.run": WANTED})


@dataclass(frozen=True)
class FakeEngine(Host):
    """Has one file on the publisher's volume, or none."""

    said: str | None = None

    def docker(self, *arguments: str) -> Result:
        assert arguments == ("cp", "prod.envoy-publisher:/volume/.said/envoy", "-")
        if self.said is None:
            return Result(1, "", "Could not find the file")
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as tar:
            entry = tarfile.TarInfo("envoy")
            entry.size = len(self.said)
            tar.addfile(entry, io.BytesIO(self.said.encode()))
        return Result(0, made.getvalue().decode(), "")


def found(said: str | None, publisher: Container = PUBLISHER) -> list[str]:
    return [one.found for one in of_publisher(publisher, FakeEngine("unix:///x", said=said))]


RUNS = "envoy:v1.40.0\nenvoy-0123\n65\n-c\n/config/bootstrap-1.yaml\n\n"


def test_an_envoy_that_runs_as_planned_is_no_drift() -> None:
    assert found(f"serves\n{RUNS}") == []


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (None, "nothing is said"),
        ("", "nothing is said"),
        (f"refuses\n{RUNS}no such field\n", "refuses envoy:v1.40.0 (-c /config/bootstrap-1.yaml)"),
        (
            f"serves\n{RUNS.replace('v1.40.0', 'v1.39.3')}",
            "serves envoy:v1.39.3 (-c /config/bootstrap-1.yaml)",
        ),
        (f"serves\n{RUNS.replace('-1', '-2')}", "serves envoy:v1.40.0 (-c /config/bootstrap-2.yaml)"),
    ],
)
def test_another_envoy_than_the_planned_one_is_told(said: str | None, told: str) -> None:
    assert found(said) == [told]


def test_other_publishers_bring_no_envoy() -> None:
    assert found(None, Container("prod.main-publisher", "gpu-01", "c")) == []
