"""`monitoring.config` as the server reads it."""

from components import server_protos
from components.monitoring import METRICS_PATH, monitoring_config


def test_the_prometheus_page_is_on_at_the_path_that_envoy_and_outputs_use() -> None:
    assert server_protos.values(server_protos.monitoring_config(monitoring_config())) == {
        "prometheus_config": {"enable": True, "path": METRICS_PATH}
    }
    assert METRICS_PATH == "/monitoring/prometheus/metrics"
