"""Batching from the outside: what clients see, and what the metrics say that ran."""

import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.simulator.conftest import Start
from tests.simulator.server import Server, publish, wait_for
from tests.simulator.test_metrics import MONITORED, sample, scrape

pytestmark = pytest.mark.simulator


@pytest.fixture
def batching(start: Start, half: Path, tmp_path: Path) -> "Batching":
    return Batching(start, half, tmp_path)


class Batching:
    """Starts servers with a batching file, metrics on."""

    def __init__(self, start: Start, base: Path, folder: Path) -> None:
        self._start, self._base, self._folder = start, base, folder
        (folder / "monitoring.config").write_text(MONITORED)

    def __call__(self, text: str, *flags: str, base_ms: float = 0, per_example_ms: float = 0) -> Server:
        (self._folder / "batching.config").write_text(text)
        batched = ["--enable_batching=true", "--batching_parameters_file=batching.config"] if text else []
        env = {"SIM_BASE_MS": str(base_ms), "SIM_PER_EXAMPLE_MS": str(per_example_ms)}
        threads = ["--rest_api_num_threads=64", "--monitoring_config_file=monitoring.config"]
        names = ["--model_name=half", f"--model_base_path={self._base}"]
        return self._start(*names, *threads, *batched, *flags, env=env).ready()


def ask_at_once(server: Server, clients: int, examples: int = 1) -> Counter[int]:
    """The statuses of as many requests, sent at the same time."""
    statuses: Counter[int] = Counter()
    barrier = threading.Barrier(clients)

    def ask() -> None:
        barrier.wait()
        statuses[server.rest("/v1/models/half:predict", {"instances": [1.0] * examples}).status] += 1

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


def _has_run(server: Server, number: int) -> bool:
    return batches(server) == number


def batches(server: Server) -> float:
    return sample(scrape(server), ":tensorflow:serving:batching_session:wrapped_run_count")


def test_concurrent_requests_share_batches(batching: Batching) -> None:
    server = batching(
        "max_batch_size { value: 8 } batch_timeout_micros { value: 200000 } num_batch_threads { value: 1 }",
        base_ms=20,
    )
    assert ask_at_once(server, 16) == {200: 16}
    assert batches(server) <= 4


def test_as_many_threads_as_requests_defeat_batching(batching: Batching) -> None:
    server = batching("max_batch_size { value: 8 } num_batch_threads { value: 64 }", base_ms=300)
    clients = [threading.Thread(target=ask_at_once, args=(server, 1)) for _ in range(4)]
    for number, client in enumerate(clients, start=1):
        client.start()
        wait_for("a batch of its own", partial(_has_run, server, number))
    for client in clients:
        client.join()


def test_without_batching_requests_run_one_after_the_other(batching: Batching) -> None:
    server = batching("", base_ms=30)
    started = time.monotonic()
    assert ask_at_once(server, 5) == {200: 5}
    assert time.monotonic() - started >= 0.15


def test_a_lone_request_waits_for_the_timeout(batching: Batching) -> None:
    server = batching("max_batch_size { value: 8 } batch_timeout_micros { value: 150000 }")
    started = time.monotonic()
    assert server.rest("/v1/models/half:predict", {"instances": [1]}).status == 200
    assert time.monotonic() - started >= 0.15


def test_a_batch_costs_its_padded_size(batching: Batching) -> None:
    server = batching("max_batch_size { value: 16 } allowed_batch_sizes: [4, 16]", per_example_ms=10)
    started = time.monotonic()
    assert server.rest("/v1/models/half:predict", {"instances": [1] * 5}).json == {"predictions": [2.5] * 5}
    assert time.monotonic() - started >= 0.16
    page = scrape(server)
    assert sample(page, ":tensorflow:serving:batching_session:processed_batch_size_sum") == 16
    padded = ':tensorflow:serving:batching_session:padding_size_sum{execution_batch_size="16"}'
    assert sample(page, padded) == 11


SPLIT = (
    "max_batch_size { value: 16 } enable_large_batch_splitting { value: true } "
    "max_execution_batch_size { value: 4 }"
)


@pytest.mark.parametrize(
    ("text", "size", "status", "message"),
    [
        ("max_batch_size { value: 4 }", 4, 200, ""),
        ("max_batch_size { value: 4 }", 5, 400, "Task size 5 is larger than maximum input batch size 4"),
        ("", 5000, 200, ""),
        ("num_batch_threads { value: 1 }", 1000, 200, ""),
        (
            "num_batch_threads { value: 1 }",
            1001,
            400,
            "Task size 1001 is larger than maximum input batch size 1000",
        ),
        (SPLIT, 16, 200, ""),
        (SPLIT, 17, 400, "Task size 17 is larger than maximum input batch size 16"),
    ],
)
def test_the_size_of_one_request_has_a_limit(
    batching: Batching, text: str, size: int, status: int, message: str
) -> None:
    reply = batching(text).rest("/v1/models/half:predict", {"instances": [1.0] * size})
    assert reply.status == status
    assert message in reply.json.get("error", "")
    if status == 200:
        assert reply.json == {"predictions": [2.5] * size}


def test_a_full_queue_answers_503(batching: Batching) -> None:
    server = batching(
        "max_batch_size { value: 1 } max_enqueued_batches { value: 2 } num_batch_threads { value: 1 }",
        base_ms=300,
    )
    statuses = ask_at_once(server, 12)
    assert statuses[503] >= 6
    assert statuses[200] >= 1
    assert set(statuses) == {200, 503}


def test_a_deadline_that_passes_in_the_queue_is_a_429(batching: Batching) -> None:
    server = batching(
        "max_batch_size { value: 1 } num_batch_threads { value: 1 }",
        "--rest_api_timeout_in_ms=150",
        base_ms=100,
    )
    statuses = ask_at_once(server, 6)
    assert statuses[429] >= 3


def test_a_scalar_can_not_be_batched(batching: Batching) -> None:
    reply = batching("max_batch_size { value: 4 }").rest("/v1/models/half:predict", {"inputs": 1.0})
    assert reply.status == 400
    assert "at least one dimension" in reply.json["error"]


def test_each_version_can_bring_its_own_parameters(start: Start, half: Path) -> None:
    publish(half, 2, {"batching_params.pbtxt": "max_batch_size { value: 2 }"})
    flags = ["--enable_batching", "--enable_per_model_batching_parameters"]
    server = start("--model_name=half", f"--model_base_path={half}", *flags).ready()
    assert server.rest("/v1/models/half:predict", {"instances": [1, 2, 3]}).status == 400
    publish(half, 3)
    server.wait_states("half", {2: "END", 3: "AVAILABLE"})
    assert server.rest("/v1/models/half:predict", {"instances": [1] * 2000}).status == 200, "3 is not batched"


def test_a_global_file_that_would_be_ignored_is_refused(start: Start, half: Path, tmp_path: Path) -> None:
    (tmp_path / "batching.config").write_text("max_batch_size { value: 2 }")
    flags = [
        "--enable_batching",
        "--enable_per_model_batching_parameters",
        "--batching_parameters_file=batching.config",
    ]
    assert start(f"--model_base_path={half}", *flags).exit_code() == 64
