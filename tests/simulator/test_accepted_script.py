"""`components/data/accepted.sh`, the script of the Job on Kubernetes, with servers that run."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from components.model_config import model_lines, models_config
from components.model_plan import ModelPlan
from components.model_settings import VersionPolicy
from tests.publishing import Accepted, still_asks
from tests.simulator.conftest import Start
from tests.simulator.server import Server, publish

pytestmark = pytest.mark.simulator

HOST = "main.serving.svc"


class Pool:
    """Servers that read one list of models, which is changed under them."""

    def __init__(self, folder: Path, start: Start) -> None:
        self.list = folder / "models.config"
        self.models = folder / "models"
        self.start = start
        self.job = Accepted(folder)

    def model(self, *versions: int, labels: dict[str, int] | None = None, **policy: Any) -> ModelPlan:
        base = self.models / "half"
        for version in versions:
            if not (base / str(version)).exists():
                base.mkdir(parents=True, exist_ok=True)
                publish(base, version)
        return ModelPlan(
            name="half",
            versions=VersionPolicy(**policy),
            labels=tuple(sorted((labels or {}).items())),
            source=str(base),
            target=str(base),
        )

    def write(self, model: ModelPlan) -> None:
        """As the kubelet does, at once and whole."""
        new = self.list.with_suffix(".new")
        new.write_text(models_config([model]))
        new.rename(self.list)

    def run(self) -> Server:
        flags = [
            f"--model_config_file={self.list}",
            "--model_config_file_poll_wait_seconds=1",
            "--allow_version_labels_for_unavailable_models=true",
            "--load_retry_interval_micros=0",
            "--max_num_load_retries=0",
        ]
        server = self.start(*flags).ready()
        self.job.pods(HOST, "127.0.0.1")
        self.port = server.rest_port
        return server

    def settings(self, model: ModelPlan, wait_s: int = 20, brought_s: int = 0) -> list[str]:
        return [f"wait {wait_s}", f"brought {brought_s}", f"pool {HOST} {self.port}", *model_lines([model])]


@pytest.fixture
def pool(tmp_path: Path, start: Start) -> Pool:
    return Pool(tmp_path, start)


@contextmanager
def asking(pool: Pool, model: ModelPlan, wait_s: int = 20) -> Iterator["subprocess.Popen[str]"]:
    with pool.job.start(pool.settings(model, wait_s)) as process:
        yield process


def test_it_ends_at_once_where_servers_have_it_and_waits_until_a_version_more_is_loaded(pool: Pool) -> None:
    one, both = pool.model(1, specific=(1,)), pool.model(1, 2, specific=(1, 2))
    pool.write(one)
    server = pool.run()
    server.wait_states("half", {1: "AVAILABLE"})
    code, said = pool.job.run(pool.settings(one))
    assert (code, said.splitlines()[-1]) == (0, "all have it")
    with asking(pool, both) as process:
        assert still_asks(process)
        pool.write(both)
        assert process.wait(20) == 0
    assert server.states("half") == {1: "AVAILABLE", 2: "AVAILABLE"}


def test_it_waits_until_a_version_less_is_gone(pool: Pool) -> None:
    both, one = pool.model(1, 2, specific=(1, 2)), pool.model(specific=(2,))
    pool.write(both)
    pool.run().wait_states("half", {1: "AVAILABLE", 2: "AVAILABLE"})
    code, said = pool.job.run(pool.settings(one, wait_s=1))
    assert code == 1
    assert "after 1 s server 127.0.0.1 still has version 1 of half" in said
    code, said = pool.job.run(pool.settings(pool.model(latest=1), wait_s=1))
    assert code == 1
    assert "of half, more than 1" in said
    with asking(pool, one) as process:
        pool.write(one)
        assert process.wait(20) == 0


def test_it_waits_until_a_label_names_another_version(pool: Pool) -> None:
    before = pool.model(1, 2, specific=(1, 2), labels={"stable": 1})
    after = pool.model(specific=(1, 2), labels={"stable": 2})
    pool.write(before)
    server = pool.run()
    server.wait_states("half", {1: "AVAILABLE", 2: "AVAILABLE"})
    code, said = pool.job.run(pool.settings(after, wait_s=1))
    assert (code, "label stable of half does not name version 2 on server 127.0.0.1" in said) == (1, True)
    with asking(pool, after) as process:
        pool.write(after)
        assert process.wait(20) == 0


def test_a_version_that_cannot_be_loaded_ends_it_with_the_servers_own_reason(pool: Pool) -> None:
    one = pool.model(1, specific=(1,))
    pool.write(one)
    pool.run().wait_states("half", {1: "AVAILABLE"})
    publish(pool.models / "half", 2, {"simulator_load_error": "out of memory"})
    both = pool.model(specific=(1, 2))
    pool.write(both)
    began = time.monotonic()
    code, said = pool.job.run(pool.settings(both, wait_s=60))
    assert code == 1
    assert "FAILED: server 127.0.0.1 cannot load version 2 of half: " in said
    assert time.monotonic() - began < 30


def test_what_a_server_said_of_an_earlier_try_counts_only_once_the_files_must_be_there(pool: Pool) -> None:
    one, both = pool.model(1, specific=(1,)), pool.model(1, specific=(1, 2))
    publish(pool.models / "half", 2, {"simulator_load_error": "out of memory"})
    pool.write(both)
    server = pool.run()
    server.wait_states("half", {1: "AVAILABLE", 2: "END"})
    pool.write(one)
    code, said = pool.job.run(pool.settings(both, brought_s=2))
    assert code == 1
    assert "FAILED: server 127.0.0.1 cannot load version 2 of half: " in said
    (pool.models / "half" / "2" / "simulator_load_error").unlink()
    with pool.job.start(pool.settings(both, brought_s=15)) as process:
        assert still_asks(process)
        pool.write(both)
        assert process.wait(20) == 0


def test_a_new_failure_ends_it_before_the_files_must_be_there(pool: Pool) -> None:
    one, both = pool.model(1, specific=(1,)), pool.model(1, specific=(1, 2))
    pool.write(one)
    pool.run().wait_states("half", {1: "AVAILABLE"})
    publish(pool.models / "half", 2, {"simulator_load_error": "out of memory"})
    with pool.job.start(pool.settings(both, wait_s=60, brought_s=60)) as process:
        assert still_asks(process)
        pool.write(both)
        assert process.wait(20) == 1


def test_pods_that_are_not_there_or_do_not_answer_are_said(pool: Pool) -> None:
    one = pool.model(1, specific=(1,))
    pool.write(one)
    server = pool.run()
    server.wait_states("half", {1: "AVAILABLE"})
    server.stop()
    assert "server 127.0.0.1 does not answer" in pool.job.run(pool.settings(one, wait_s=1))[1]
    pool.job.pods(HOST)
    code, said = pool.job.run(pool.settings(one, wait_s=1))
    assert (code, f"no pod behind {HOST} is ready" in said) == (1, True)
