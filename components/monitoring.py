"""`monitoring.config`: turns on the server's Prometheus page (its config/monitoring_config.proto)."""

from components.text_proto import render

ENVOY_METRICS_PATH = "/metrics"
"""Where the front end shows its own metrics, on its metrics port."""
METRICS_PATH = "/monitoring/prometheus/metrics"
"""Where an instance shows its metrics, on its REST port; the server matches the path exactly."""


def front_end_path(instance: str) -> str:
    """Where the front end shows an instance's metrics, on its metrics port."""
    return f"/instances/{instance}/metrics"


def monitoring_config() -> str:
    """The text of `monitoring.config`."""
    return render({"prometheus_config": {"enable": True, "path": METRICS_PATH}})
