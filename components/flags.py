"""Command line of one server, checked against the flags that its version has."""

from components import server_files
from components.facts import facts
from components.server_spec import GRPC_PORT, REST_PORT, Server

BINARY = "/usr/bin/tensorflow_model_server"
MODELS_POLL_S = 5
"""How often a server reads its list of models again; each time it writes two lines into its log."""

# TensorFlow counts them: what is below the number is not logged.
_LOG_LEVELS = ("info", "warning", "error")


def server_arguments(instance: Server) -> tuple[str, ...]:
    """Arguments in a fixed order, `--name=value` each: the only form that the server reads.

    Raises ValueError for a flag that this version lacks: the server would print it and carry on without.
    """
    batching = server_files.batching_file(instance)
    flags: dict[str, str | int | float | bool | None] = {
        "port": GRPC_PORT,
        "rest_api_port": REST_PORT,
        "rest_api_timeout_in_ms": instance.request_timeout_s * 1000,
        "model_config_file": server_files.path(server_files.models_file(instance)),
        "monitoring_config_file": server_files.path(server_files.monitoring_file()),
        "enable_batching": True if batching else None,
        "batching_parameters_file": server_files.path(batching) if batching else None,
        "model_config_file_poll_wait_seconds": MODELS_POLL_S,
        # A label may then name a version that is still loading; else a cold start with labels never ends.
        # Also without labels: the first one is to reach servers that run.
        "allow_version_labels_for_unavailable_models": True,
        "per_process_gpu_memory_fraction": instance.gpu_memory.fraction,
        "grpc_max_threads": instance.threads.grpc_max,
        "rest_api_num_threads": instance.threads.rest,
        "tensorflow_intra_op_parallelism": instance.threads.intra_op,
        "tensorflow_inter_op_parallelism": instance.threads.inter_op,
        # Without threads of their own, loads wait for each other: one version that cannot be loaded holds up
        # every other for as long as it is tried again, by default five minutes.
        "num_load_threads": 2,
        # On by default, and unauthenticated on the port that serves requests.
        "enable_profiler": False,
        **_options(instance),
    }
    known = facts().flags_of(instance.version)
    missing = sorted(name for name, value in flags.items() if value is not None and name not in known)
    if missing:
        raise ValueError(f"TensorFlow Serving {instance.version} has no flag {', '.join(missing)}")
    return tuple(f"--{name}={_text(value)}" for name, value in flags.items() if value is not None)


def server_environment(instance: Server) -> tuple[str, ...]:
    """Environment of the server, `NAME=value` each."""
    return (
        f"TF_CPP_MIN_LOG_LEVEL={_LOG_LEVELS.index(instance.log_level)}",
        # Spelt exactly `true` or `false`: TensorFlow logs an error for anything else and ignores it.
        f"TF_FORCE_GPU_ALLOW_GROWTH={_text(instance.gpu_memory.allow_growth)}",
    )


def _options(instance: Server) -> dict[str, str | int | bool]:
    options: dict[str, str | int | bool] = instance.server.model_dump(exclude_none=True)
    return {**options, "xla_gpu_compilation_enabled": True} if instance.needs_gpu_xla else options


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
