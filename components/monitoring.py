"""`monitoring.config`: turns on the server's Prometheus page (its config/monitoring_config.proto)."""

from components.text_proto import render

METRICS_PATH = "/monitoring/prometheus/metrics"
"""Where an instance shows its metrics, on its REST port; the server matches the path exactly."""


def monitoring_config() -> str:
    """The text of `monitoring.config`."""
    return render({"prometheus_config": {"enable": True, "path": METRICS_PATH}})
