"""What the front end's container runs: which Envoy, with which arguments. See `data/envoy_run.sh`."""

from components.envoy_config import CONFIG_FOLDER
from components.envoy_files import bootstrap_file
from components.plan import FrontEndPlan

RUN_SCRIPT = "envoy_run.sh"
ENVOY_USER = 101
"""`envoy` in the official image."""
_DRAIN_MARGIN_S = 5


def envoy_arguments(plan: FrontEndPlan, *, workers: int) -> tuple[str, ...]:
    """Envoy's command line."""
    bootstrap, _ = bootstrap_file(plan)
    return (
        *("-c", f"{CONFIG_FOLDER}/{bootstrap}"),
        "--reject-unknown-dynamic-fields",  # only a warning otherwise, and the field is left out
        *("--concurrency", str(workers)),
        # A replaced listener cuts what is still on it when this time is over.
        *("--drain-time-s", str(_drain_s(plan))),
        *("--log-level", "warning"),
        *("--file-flush-interval-msec", "1000"),  # an access log that is 10 s late misleads
    )


def end_s(plan: FrontEndPlan) -> int:
    """How long an Envoy that is replaced goes on with the requests that it has, in seconds.

    While it drains, it closes a client's connection with one of its answers. So requests may still come on
    one that was idle, and the last of them may take its whole time.
    """
    return _drain_s(plan) + plan.spec.request_timeout_s


def wanted_run(plan: FrontEndPlan) -> str:
    """What is to run, a line each, as `data/envoy_upgrade.sh` reads it."""
    arguments = envoy_arguments(plan, workers=plan.spec.workers)
    return "".join(f"{line}\n" for line in (plan.image, str(end_s(plan)), *arguments))


def _drain_s(plan: FrontEndPlan) -> int:
    return plan.spec.request_timeout_s + _DRAIN_MARGIN_S
