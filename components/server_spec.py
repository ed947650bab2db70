"""What a server is told, whichever target it is placed on: flags and files are made from this alone."""

from typing import Protocol

from components.model_plan import ModelPlan
from components.plan import ThreadCounts
from components.pool_settings import Batching, GpuMemory, ServerOptions


class Server(Protocol):
    """The part of an instance's plan that says nothing of where it runs."""

    @property
    def version(self) -> str:
        """Of TensorFlow Serving."""

    @property
    def models(self) -> tuple[ModelPlan, ...]:
        """What it serves."""

    @property
    def model_mounts(self) -> tuple[tuple[str, str], ...]:
        """Folders that it sees, and where each comes from."""

    @property
    def by_version(self) -> bool:
        """Whether other versions come with another server, never under one that runs."""

    @property
    def needs_gpu_xla(self) -> bool:
        """Whether a model is compiled for the GPU."""

    @property
    def batching(self) -> Batching | None:
        """None: each request runs alone."""

    @property
    def gpu_memory(self) -> GpuMemory:
        """How much of its GPU it takes."""

    @property
    def threads(self) -> ThreadCounts:
        """Sizes of its thread pools."""

    @property
    def server(self) -> ServerOptions:
        """Further flags."""

    @property
    def log_level(self) -> str:
        """What it logs."""

    @property
    def request_timeout_s(self) -> int:
        """How long a request may take."""
