"""What a server is told, whichever target it is placed on: flags and files are made from this alone."""

from dataclasses import dataclass

from components.model_plan import ModelPlan
from components.pool_settings import Batching, GpuMemory, Memory, Pool, ServerOptions
from components.settings import Rollout

GRPC_PORT = 8500
REST_PORT = 8501
"""Ports inside every server's container, as in the official image; only Envoy publishes any."""


@dataclass(frozen=True, kw_only=True)
class ThreadCounts:
    """Thread pool sizes that are handed to the server; None leaves one to it."""

    grpc_max: int | None
    rest: int | None
    intra_op: int | None
    inter_op: int | None


@dataclass(frozen=True, kw_only=True)
class Server:
    """The part of a server's plan that says nothing of where it runs."""

    image: str
    version: str
    """Of TensorFlow Serving, from the image's tag."""
    models: tuple[ModelPlan, ...]
    model_mounts: tuple[tuple[str, str], ...]
    """Folders in the container, and which of its node or its volume is seen there, read-only."""
    by_version: bool
    """Whether other versions come with another server, never under one that runs."""
    needs_gpu_xla: bool
    batching: Batching | None
    gpu_memory: GpuMemory
    memory: Memory
    threads: ThreadCounts
    server: ServerOptions
    log_level: str
    load_timeout_s: int
    request_timeout_s: int
    rollout: Rollout


def thread_counts(pool: Pool) -> ThreadCounts:
    """What a pool's servers are told about threads."""
    return ThreadCounts(
        grpc_max=pool.grpc_threads() or None,
        rest=pool.rest_threads() or None,
        intra_op=pool.threads.intra_op,
        inter_op=pool.threads.inter_op,
    )
