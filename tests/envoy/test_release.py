"""A release under way on a real Envoy, before servers that have one version each and change it."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from components.model_config import models_config
from components.model_plan import ModelPlan
from components.model_settings import VersionPolicy
from components.plan import Endpoint
from components.server_spec import GRPC_PORT, REST_PORT
from images.samples import MODEL, write_sample_models
from images.simulator import simulator_binary
from tests.envoy.harness import Site, site, wait_for
from tests.envoy.pools import SmallPool
from tests.integration import predict
from tests.integration.predict import Answer, Load

pytestmark = pytest.mark.envoy

HEADER = "x-tf-model-version"
SERVED = {
    "name": MODEL,
    "path": f"/srv/models/{MODEL}",
    "versions": {"specific": [1]},
    "labels": {"stable": 1},
}
POOL = SmallPool(
    instances=4,
    models=[MODEL],
    more={"models": [SERVED], "release": {"model": MODEL, "version": 2, "moved": 1}},
)


@dataclass
class Released:
    """The first of four instances has version 2; `have` says what each one is started with."""

    site: Site
    have: dict[str, int]

    def rest(self, version: int | None, path: str = "") -> Callable[[], Answer]:
        port, model = self.site.plan.spec.rest_port, f"{MODEL}{path}"
        headers = {HEADER: str(version)} if version else None
        return lambda: predict.rest(port, model=model, headers=headers)

    def grpc(self, version: int | None = None, header: int | None = None) -> Callable[[], Answer]:
        port = self.site.plan.spec.grpc_port
        headers = {HEADER: str(header)} if header else None
        return lambda: predict.over_grpc(port, version=version, headers=headers)

    def restart(self, name: str, version: int) -> None:
        """What a step of a release does; Envoy is not told."""
        backend = self.site.backends[name]
        self.have[name] = version
        backend.kill()
        backend.start()
        wait_for(f"{name} answers", backend.is_up)

    def in_part(self, version: int, count: int) -> None:
        """Envoy knows how many of a version's instances have it."""
        wait_for(
            f"{count} with version {version}",
            lambda: all(
                self.site.healthy(f"{protocol}-main_v{version}") == count for protocol in ("rest", "grpc")
            ),
        )


@pytest.fixture
def released(envoy_binary: Path, tmp_path: Path) -> Iterator[Released]:
    base = write_sample_models(tmp_path / "models", versions=(1, 2))
    binary = simulator_binary()
    have: dict[str, int] = {}

    def launch(endpoint: Endpoint) -> subprocess.Popen[bytes]:
        version = have.setdefault(endpoint.name, 2 if endpoint.name == "gpu-01-gpu0" else 1)
        model = ModelPlan(
            name=MODEL,
            versions=VersionPolicy(specific=(version,)),
            labels=(("stable", version),),
            source=str(base),
            target=str(base),
        )
        config = tmp_path / f"{endpoint.name}.config"
        config.write_text(models_config([model]))
        command = [
            str(binary),
            f"--port={GRPC_PORT}",
            f"--rest_api_port={REST_PORT}",
            f"--model_config_file={config}",
            "--allow_version_labels_for_unavailable_models=true",
        ]
        knobs = {"SIM_BIND_ADDRESS": str(endpoint.address), "SIM_ALLOW_ANY_GPU": "1"}
        with (tmp_path / f"{endpoint.name}.log").open("ab") as log:
            return subprocess.Popen(command, env=os.environ | knobs, stdout=log, stderr=log)

    with site(envoy_binary, tmp_path, [POOL], launch=launch) as made:
        yield Released(made, have)


def test_a_version_is_answered_by_who_has_it_and_the_rest_by_everybody(released: Released) -> None:
    def who(ask: Callable[[], Answer], times: int = 12) -> set[str]:
        return {ask().served_by.removeprefix("gpu-01-") for _ in range(times)}

    for ask in (
        released.rest(2),
        released.rest(None, "/versions/2"),
        released.grpc(2),
        released.grpc(header=2),
    ):
        assert who(ask) == {"gpu0"}
    for ask in (
        released.rest(1),
        released.rest(None, "/versions/1"),
        released.grpc(1),
        released.grpc(header=1),
    ):
        assert "gpu0" not in who(ask)
    for ask in (released.rest(None), released.rest(None, "/labels/stable"), released.grpc()):
        assert who(ask, 60) == {f"gpu{n}" for n in range(4)}
    assert released.rest(3)().status == 400


def test_an_instance_that_gets_the_other_version_before_envoy_is_told_fails_nobody(
    released: Released,
) -> None:
    questions = [
        released.rest(1),
        released.rest(None, "/versions/1"),
        released.grpc(1),
        released.grpc(header=1),
        released.rest(None),
        released.grpc(),
    ]
    loads = [Load(question, clients=2) for question in questions]
    with ExitStack() as running:
        for load in loads:
            running.enter_context(load)
        for name, version, left in (
            ("gpu-01-gpu1", 2, 2),
            ("gpu-01-gpu2", 2, 1),
            ("gpu-01-gpu2", 1, 2),
            ("gpu-01-gpu1", 1, 3),
        ):
            released.restart(name, version)
            released.in_part(1, left)
    for load in loads:
        assert set(load.outcomes) == {"answered"}, [each.outcomes for each in loads]
