"""Settings of a pool: which models its instances serve, on which slots, and how each server is tuned."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from components.base import Model, repeated
from components.errors import Problem
from components.model_settings import ServedModel
from components.release_settings import Release
from components.routing_settings import Balancing, Traffic
from components.types import MOST_MIB, SLOT_PART, ModelPath, RawFile, Slug


class Batching(Model):
    """Server-side batching; one set of parameters for every model of an instance.

    Rules: the server's bundle_factory_util.cc and TensorFlow's shared_batch_scheduler.h.
    """

    preset: Literal["image", "text", "throughput"] | None = None
    """Where to begin, by kind of model; whatever is set beside it wins."""
    max_batch_size: Annotated[int, Field(ge=1, le=65536)]
    """Examples in a batch, and in one request unless large ones are split."""
    batch_timeout_micros: Annotated[int, Field(ge=0, le=10_000_000)]
    """How long an incomplete batch waits for more, in microseconds."""
    num_batch_threads: Annotated[int, Field(ge=1, le=256)] = 2
    """Batches that run at once. Keep it low: if every request finds a free thread, nothing batches."""
    max_enqueued_batches: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Batches that may wait; beyond them the server answers UNAVAILABLE (503)."""
    allowed_batch_sizes: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Sizes that batches are padded up to: ascending, the last one equal to max_batch_size."""
    pad_variable_length_inputs: bool = False
    """Pad inputs of different shapes to one; else such requests cannot share a batch."""
    enable_large_batch_splitting: bool = False
    """Split requests larger than max_execution_batch_size; needs that to be set."""
    max_execution_batch_size: Annotated[int, Field(ge=1, le=65536)] | None = None
    """With splitting: examples that run at once. It should be among the allowed sizes."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._allowed_sizes_ascend_to_the_maximum()
        yield from self._splitting_says_into_what()

    def _allowed_sizes_ascend_to_the_maximum(self) -> Iterator[Problem]:
        """The server refuses another last size when the model loads, minutes after it started."""
        sizes = self.allowed_batch_sizes
        if any(later <= earlier for earlier, later in pairwise(sizes)):
            yield Problem("allowed_batch_sizes", "must increase", list(sizes))
        elif sizes and sizes[-1] != self.max_batch_size:
            yield Problem(
                "allowed_batch_sizes",
                f"the last size must equal max_batch_size {self.max_batch_size}",
                list(sizes),
            )

    def _splitting_says_into_what(self) -> Iterator[Problem]:
        """With splitting on and no execution size, the server takes zero for it."""
        size = self.max_execution_batch_size
        if self.enable_large_batch_splitting and size is None:
            yield Problem("max_execution_batch_size", "is required with enable_large_batch_splitting")
        if size is None:
            return
        if not self.enable_large_batch_splitting:
            yield Problem("max_execution_batch_size", "only with enable_large_batch_splitting: true", size)
        elif size > self.max_batch_size:
            yield Problem("max_execution_batch_size", f"exceeds max_batch_size {self.max_batch_size}", size)
        elif self.allowed_batch_sizes and size not in self.allowed_batch_sizes:
            yield Problem("max_execution_batch_size", "must be one of allowed_batch_sizes", size)


class GpuMemory(Model):
    """How much of its GPU a server takes."""

    allow_growth: bool = True
    """Take memory as it is needed rather than all at start; it is never given back."""
    fraction: Annotated[float, Field(gt=0, le=0.95)] | None = None
    """Upper bound as a share of the whole GPU; the CUDA context (0.3 to 1 GiB) comes on top."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._something_is_said()

    def _something_is_said(self) -> Iterator[Problem]:
        """Without either the server takes all memory of its GPU as it starts."""
        if not self.allow_growth and self.fraction is None:
            yield Problem("fraction", "is required with allow_growth: false; at most 0.95")


class Memory(Model):
    """Host memory of each instance's container."""

    container_mib: Annotated[int, Field(ge=64, le=MOST_MIB)]
    """Limit in MiB, no swap. Both versions of a model are loaded while one replaces the other."""
    shm_mib: Annotated[int, Field(ge=1, le=MOST_MIB)] = 64
    """Shared memory in MiB; the server itself does not use it."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._shared_memory_fits()

    def _shared_memory_fits(self) -> Iterator[Problem]:
        """Shared memory counts against the container's limit."""
        if self.shm_mib > self.container_mib:
            yield Problem("shm_mib", f"exceeds container_mib {self.container_mib}", self.shm_mib)


Threads = Annotated[int, Field(ge=1, le=4096)]


class ThreadPools(Model):
    """Sizes of a server's thread pools; unset ones are derived from batching, or left to the server."""

    grpc_max: Threads | None = None
    """gRPC requests in flight: one thread each. Derived: twice max_batch_size, at least 16."""
    rest: Threads | None = None
    """REST requests in flight: one thread each. Derived like grpc_max."""
    intra_op: Threads | None = None
    """Threads inside one TensorFlow operation."""
    inter_op: Threads | None = None
    """TensorFlow operations that run side by side."""


Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


class ServerOptions(Model):
    """Further flags of the server, by their own names; its version decides which exist."""

    num_load_threads: Count | None = None
    """Threads that load new versions; 0 loads them one after the other."""
    num_unload_threads: Count | None = None
    """Threads that unload old versions."""
    max_num_load_retries: Count | None = None
    """Further attempts to load a version that failed; after them it is given up for good."""
    load_retry_interval_micros: Annotated[int, Field(ge=-1, le=2**63 - 1)] | None = None
    """Pause between attempts, in microseconds; -1: none."""
    file_system_poll_wait_seconds: Count | None = None
    """How often version folders are looked for, in seconds; 0: once, at start."""
    flush_filesystem_caches: bool | None = None
    """Drop the file cache after loading."""
    saved_model_tags: str | None = None
    """Tags of the graph to load, separated by commas."""
    enable_model_warmup: bool | None = None
    """Replay `assets.extra/tf_serving_warmup_requests` before a version serves."""
    num_request_iterations_for_warmup: Count | None = None
    """How often each warm-up record is replayed."""
    rest_api_enable_cors_support: bool | None = None
    """Answer browsers on other origins."""
    remove_unused_fields_from_bundle_metagraph: bool | None = None
    """Save memory by dropping the graph's definition once it is loaded."""
    enable_signature_method_name_check: bool | None = None
    """Refuse signatures whose method name does not fit the call."""
    prefer_tflite_model: bool | None = None
    """Load `model.tflite` where a version has one. Experimental."""
    xla_cpu_compilation_enabled: bool | None = None
    """Let XLA compile for the CPU."""
    xla_gpu_compilation_enabled: bool | None = None
    """Let XLA compile for the GPU."""
    mixed_precision: Literal["bfloat16"] | None = None
    """Rewrite CPU operations to this type."""
    enable_grpc_healthcheck_service: bool | None = None
    """Answer grpc.health.v1, inside the node alone: whether the process serves, not whether a model does."""
    enable_serialization_as_tensor_content: bool | None = None
    """Encode tensors in responses as raw bytes."""


def _slot_key(value: object) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 15:
        return value
    if isinstance(value, str) and SLOT_PART.fullmatch(value):
        return value
    raise ValueError("accepted: a GPU's index (0 to 15), or '<gpu>:<part>' of one that is cut up, in quotes")


SlotKey = Annotated[
    int | str,
    PlainValidator(_slot_key),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 15},
                {"type": "string", "pattern": SLOT_PART.pattern},
            ]
        }
    ),
]
"""How a pool names a slot: a GPU's index, or `<gpu>:<part>` of one that is cut up (NVIDIA's own notation)."""


class SlotGroup(Model):
    """Slots of one node, by GPU index; `'1:0'` is part 0 of GPU 1 where that is cut up (MIG)."""

    node: Slug
    """A node's name."""
    gpus: Annotated[tuple[SlotKey, ...], Field(min_length=1)]
    """In the order in which a change reaches them."""


class Pool(Model):
    """Instances that serve the same models; Envoy balances over them."""

    name: Slug
    """Names the pool in Envoy and on its containers; renaming it replaces them one after the other."""
    renamed_from: Slug | None = None
    """The name before, for one `up`: Pulumi then sees the same resources."""
    models: Annotated[tuple[ServedModel, ...], Field(min_length=1, max_length=100)]
    """What each of its instances serves."""
    models_folder: ModelPath | None = None
    """A folder of the node that holds all of them, mounted once: servers that run then take up a model that
    is added or removed. Without it each model has a mount of its own, and another one replaces them."""
    models_file: RawFile | None = None
    """A `models.config` instead of `models`; base_path in it is the folder on the node."""
    new_versions: Literal["reload", "replace"] = "reload"
    """How servers get to other `versions`: `reload` in place, with old and new in memory for a moment, or
    `replace`: one server after the other, each with the new ones alone."""
    release: Release | None = None
    """Only while one is under way: `make release` sets it, changes it and takes it out again."""
    slots: Annotated[tuple[SlotGroup, ...], Field(min_length=1)]
    """One instance on each."""
    sharing: bool = False
    """Share slots with other pools that say so too, without isolation between them. Not in prod."""
    all_gpus: bool = False
    """One instance with all GPUs of a slot group; a SavedModel computes on the first alone. Not in prod."""
    single: bool = False
    """Its models may be down while their one instance is replaced: required in prod where that is so."""
    max_unavailable: Annotated[int, Field(ge=1, le=64)] = 1
    """So many of its instances may be away at once as a change reaches them: the others take their load."""
    batching: Batching | None = None
    """Unset: no batching, each request runs alone."""
    unbatched: bool = False
    """Its models cannot be batched: required in prod where `batching` is unset."""
    batching_file: RawFile | None = None
    """A batching parameters file instead of `batching`; without num_batch_threads in it, 2 are taken."""
    client_batch_size: Annotated[int, Field(ge=1)] | None = None
    """The most examples that clients send in one request: checked against what the server takes."""
    gpu_memory: GpuMemory = GpuMemory()
    """GPU memory of each instance."""
    memory: Memory
    """Host memory of each instance."""
    threads: ThreadPools = ThreadPools()
    """Thread pools of each instance."""
    server: ServerOptions = ServerOptions()
    """Further flags of the server."""
    balancing: Balancing = Balancing()
    """How Envoy shares requests out over its instances."""
    traffic: Traffic = Traffic()
    """Which of its requests other pools get."""
    log_level: Literal["info", "warning", "error"] = "info"
    """What the server writes to its log."""
    load_timeout_s: Annotated[int, Field(ge=10, le=86400)] = 600
    """Patience for loading, in seconds: `up` waits this long for each instance before it fails."""

    def _rules(self) -> Iterator[Problem]:
        yield from self._models_are_told_apart()
        yield from self._models_lie_in_their_folder()
        yield from self._batches_can_fill()
        yield from self._requests_fit_a_batch()
        yield from self._one_way_to_take_gpus()
        yield from self._batched_or_not()
        yield from self._one_stays()

    def _models_are_told_apart(self) -> Iterator[Problem]:
        """A server refuses two models of one name; an original that is kept has a name too."""
        yield from repeated("models", "name", [model.name for model in self.models])
        names = {model.name for model in self.models}
        for m, model in enumerate(self.models):
            for original in names.intersection(model.served_names[1:]):
                message = f"{original} is also a model of the pool"
                yield Problem(f"models[{m}].optimized.keep_original", message)

    def _models_lie_in_their_folder(self) -> Iterator[Problem]:
        """What lies outside the one folder that is mounted, no server sees."""
        if self.models_folder is None:
            return
        folder = PurePosixPath(self.models_folder)
        for m, model in enumerate(self.models):
            paths = {"path": model.path} | (
                {"optimized.path": model.optimized.path} if model.optimized else {}
            )
            for key, path in paths.items():
                if folder not in PurePosixPath(path).parents:
                    yield Problem(f"models[{m}].{key}", f"is not inside models_folder {folder}", path)
                elif any(character.isspace() for character in path):
                    yield Problem(f"models[{m}].{key}", "cannot hold a blank beside models_folder", path)

    def _batches_can_fill(self) -> Iterator[Problem]:
        """Each waiting request holds a thread, so fewer threads than max_batch_size never fill a batch."""
        if self.batching is None:
            return
        most = self.grpc_threads() + self.rest_threads()
        if most < self.batching.max_batch_size:
            yield Problem(
                "threads",
                f"{most} requests in flight can never fill a batch of {self.batching.max_batch_size}; "
                "raise grpc_max and rest, or lower batching.max_batch_size",
                self.threads.model_dump(exclude_none=True),
            )

    def _requests_fit_a_batch(self) -> Iterator[Problem]:
        """A request larger than max_batch_size is refused, with splitting too: it bounds what is split."""
        size, batching = self.client_batch_size, self.batching
        if size is not None and batching is not None and size > batching.max_batch_size:
            yield Problem(
                "client_batch_size",
                f"exceeds batching.max_batch_size {batching.max_batch_size}: the server answers 400; raise "
                "it, with enable_large_batch_splitting if the GPU cannot take so much",
                size,
            )

    def _one_way_to_take_gpus(self) -> Iterator[Problem]:
        """A container with all GPUs leaves nothing to share, and one process sees one part of a GPU."""
        parts = [key for group in self.slots for key in group.gpus if isinstance(key, str)]
        if self.all_gpus and parts:
            yield Problem("all_gpus", "needs whole GPUs: a process sees only one part of a GPU", parts)
        if self.sharing and self.all_gpus:
            yield Problem("all_gpus", "cannot be combined with sharing")

    def _batched_or_not(self) -> Iterator[Problem]:
        """Both at once say nothing."""
        if self.unbatched and self.batching is not None:
            yield Problem("unbatched", "cannot be combined with batching", True)

    def _one_stays(self) -> Iterator[Problem]:
        """A pool whose instances are all away at once answers nobody."""
        count = self.instances_on()
        if 1 < count <= self.max_unavailable:
            yield Problem(
                "max_unavailable",
                f"leaves none of its {count} instances; at most {count - 1}",
                self.max_unavailable,
            )

    def instances_on(self, node: str | None = None) -> int:
        """How many instances it has: one with all GPUs of a node, else one a slot; of one node or of all."""
        groups = [group for group in self.slots if node in (None, group.node)]
        return len(groups) if self.all_gpus else sum(len(group.gpus) for group in groups)

    def grpc_threads(self) -> int:
        """gRPC requests that may be in flight; 0 where that is left to a server that does not batch."""
        return self.threads.grpc_max or self._threads_for_batches()

    def rest_threads(self) -> int:
        """REST requests that may be in flight; 0 where that is left to a server that does not batch."""
        return self.threads.rest or self._threads_for_batches()

    def _threads_for_batches(self) -> int:
        # Each request that waits for its batch holds a thread, so the server's own default (4 per CPU) caps
        # the batch. Twice the batch lets one fill while one runs (batching/README.md of the server).
        return max(16, 2 * self.batching.max_batch_size) if self.batching else 0


def leading_pools(pools: Sequence[Pool]) -> tuple[Pool, ...]:
    """Pools that requests are for; the others only help them (`traffic`)."""
    helpers = {name for pool in pools for _, name in pool.traffic.helpers}
    return tuple(pool for pool in pools if pool.name not in helpers)
