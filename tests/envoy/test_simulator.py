"""Envoy before the simulator: what the one writes and the other reads fits together."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.monitoring import monitoring_config
from components.plan import Endpoint
from components.server_spec import GRPC_PORT, REST_PORT
from images.samples import MODEL, write_sample_models
from images.simulator import simulator_binary
from tests.envoy.harness import Site, site
from tests.envoy.pools import SmallPool

pytestmark = pytest.mark.envoy

STATUS = "/tensorflow.serving.ModelService/GetModelStatus"


@pytest.fixture(scope="module")
def simulated(envoy_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("envoy")
    base = write_sample_models(folder / "models", versions=(1, 2))
    monitoring = folder / "monitoring.config"
    monitoring.write_text(monitoring_config())
    binary = simulator_binary()

    def launch(endpoint: Endpoint) -> subprocess.Popen[bytes]:
        command = [
            str(binary),
            f"--port={GRPC_PORT}",
            f"--rest_api_port={REST_PORT}",
            f"--model_name={MODEL}",
            f"--model_base_path={base}",
            f"--monitoring_config_file={monitoring}",
        ]
        knobs = {"SIM_BIND_ADDRESS": str(endpoint.address), "SIM_ALLOW_ANY_GPU": "1"}
        with (folder / f"{endpoint.name}.log").open("wb") as log:
            return subprocess.Popen(command, env=os.environ | knobs, stdout=log, stderr=log)

    with site(envoy_binary, folder, [SmallPool(instances=2, models=[MODEL])], launch=launch) as made:
        yield made


def test_each_instance_answers_a_prediction(simulated: Site) -> None:
    served = set()
    for _ in range(30):
        answer = simulated.rest("POST", f"/v1/models/{MODEL}:predict", b'{"instances": [1.0, 2.0]}')
        assert (answer.status, answer.json()) == (200, {"predictions": [2.5, 3.0]})
        served.add(answer.served_by)
    assert served == set(simulated.backends)


def test_a_named_version_answers_and_an_absent_one_is_the_servers_own_404(simulated: Site) -> None:
    body = b'{"instances": [1.0]}'
    assert simulated.rest("POST", f"/v1/models/{MODEL}/versions/2:predict", body).status == 200
    absent = simulated.rest("POST", f"/v1/models/{MODEL}/versions/9:predict", body)
    assert absent.status == 404
    assert absent.served_by in simulated.backends


@pytest.mark.parametrize("page", ["", "/metadata", "/versions/2", "/versions/2/metadata"])
def test_status_and_metadata_are_passed_on(simulated: Site, page: str) -> None:
    assert simulated.rest("GET", f"/v1/models/{MODEL}{page}").status == 200


def test_grpc_reaches_the_instances(simulated: Site) -> None:
    name = MODEL.encode()
    spec = b"\x0a" + bytes([len(name)]) + name  # ModelSpec: name, field 1
    answer, served_by = simulated.grpc(STATUS, b"\x0a" + bytes([len(spec)]) + spec)
    assert b"\x10\x1e" in answer  # ModelVersionStatus: state, field 2, AVAILABLE = 30
    assert served_by in simulated.backends


def test_every_instance_shows_its_metrics_through_envoy(simulated: Site) -> None:
    for name in simulated.backends:
        page = simulated.metrics(f"/instances/{name}/metrics")
        assert page.status == 200
        assert b"# TYPE" in page.body
