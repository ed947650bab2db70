"""The Prometheus page: where it is, and what stands on it when."""

import re
from pathlib import Path

import pytest

from tests.simulator.conftest import Start
from tests.simulator.server import Server
from tests.simulator.wire import PREDICTION, floats

pytestmark = pytest.mark.simulator
PATH = "/monitoring/prometheus/metrics"
MONITORED = f'prometheus_config {{ enable: true path: "{PATH}" }}'


def scrape(server: Server) -> dict[str, float]:
    """Every sample of the page by its name and labels; a count of zero labels has none."""
    reply = server.rest(PATH)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/plain")
    lines = [line for line in reply.text.splitlines() if not line.startswith("#")]
    return {name.removesuffix("{}"): float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def sample(page: dict[str, float], name: str) -> float:
    return page.get(name, 0.0)


@pytest.fixture
def monitored(start: Start, half: Path, tmp_path: Path) -> Server:
    (tmp_path / "monitoring.config").write_text(MONITORED)
    flags = ["--model_name=half", f"--model_base_path={half}", "--monitoring_config_file=monitoring.config"]
    return start(*flags).ready()


@pytest.mark.parametrize(
    ("text", "there", "not_there"),
    [
        ("prometheus_config { enable: true }", [PATH], ["/metrics", PATH + "/"]),
        ('prometheus_config { enable: true path: "/stats" }', ["/stats"], [PATH]),
        ('prometheus_config { path: "/stats" }', [], ["/stats", PATH]),
        ("", [], [PATH]),
    ],
)
def test_the_page_is_where_the_file_says_and_only_if_enabled(
    start: Start, half: Path, tmp_path: Path, text: str, there: list[str], not_there: list[str]
) -> None:
    (tmp_path / "monitoring.config").write_text(text or "# nothing")
    server = start(f"--model_base_path={half}", "--monitoring_config_file=monitoring.config").ready()
    assert [server.rest(path).status for path in there] == [200] * len(there)
    assert [server.rest(path).status for path in not_there] == [404] * len(not_there)


def test_nothing_is_counted_before_it_is_touched(monitored: Server) -> None:
    page = scrape(monitored)
    assert not [name for name in page if name.startswith(":tensorflow:serving:")]
    loaded = [name for name in page if name.startswith(":tensorflow:cc:saved_model:load_attempt_count{")]
    assert len(loaded) == 1
    assert 'status="success"' in loaded[0]


def test_requests_are_counted_by_model_and_status(monitored: Server) -> None:
    for _ in range(3):
        monitored.rest("/v1/models/half:predict", {"instances": [1]})
    monitored.rest("/v1/models/half:predict", {"instances": []})
    monitored.rest("/v1/models/other:predict", {"instances": [1]})
    monitored.rest("/v1/models/half")
    monitored.grpc(PREDICTION, "Predict", {"model_spec": {"name": "half"}, "inputs": {"x": floats(1)}})
    page = scrape(monitored)
    count = ':tensorflow:serving:request_count{model_name="%s",status="%s"}'
    assert sample(page, count % ("half", "OK")) == 5, "a GET of the status counts too"
    assert sample(page, count % ("half", "INVALID_ARGUMENT")) == 1
    assert sample(page, count % ("other", "NOT_FOUND")) == 1
    latency = ':tensorflow:serving:request_latency_count{model_name="half",API="%s",entrypoint="%s"}'
    assert sample(page, latency % ("predict", "REST")) == 3, "failures have no latency"
    assert sample(page, latency % ("", "REST")) == 1
    assert sample(page, latency % ("Predict", "GRPC")) == 1
    assert (
        sample(
            page, ':tensorflow:serving:runtime_latency_count{model_name="half",API="Predict",runtime="TF1"}'
        )
        == 4
    )


def test_latencies_are_microseconds_in_buckets_that_grow_by_1_8(
    start: Start, half: Path, tmp_path: Path
) -> None:
    (tmp_path / "monitoring.config").write_text(MONITORED)
    flags = ["--model_name=half", f"--model_base_path={half}", "--monitoring_config_file=monitoring.config"]
    server = start(*flags, env={"SIM_BASE_MS": "50"}).ready()
    server.rest("/v1/models/half:predict", {"instances": [1]})
    page = scrape(server)
    labels = 'model_name="half",API="predict",entrypoint="REST"'
    assert 50_000 <= sample(page, f":tensorflow:serving:request_latency_sum{{{labels}}}") < 1_000_000
    bucket = re.compile(re.escape(f":tensorflow:serving:request_latency_bucket{{{labels}") + r',le="(.+)"}')
    bounds = [match[1] for match in map(bucket.fullmatch, page) if match]
    assert bounds[:3] == ["10", "18", "32.4"]
    assert (len(bounds), bounds[-1]) == (34, "+Inf")


def test_names_have_colons_and_types_and_no_help(monitored: Server) -> None:
    monitored.rest("/v1/models/half")
    text = monitored.rest(PATH).text
    assert "# TYPE :tensorflow:serving:request_count counter" in text
    assert "# TYPE :tensorflow:serving:request_latency histogram" in text
    assert "# HELP" not in text
