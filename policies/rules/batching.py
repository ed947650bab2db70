"""A GPU computes on many requests at once: batching is on, its file is valid, and its batches can fill."""

import re
from collections.abc import Iterator
from itertools import pairwise

from pack.batching import Parameters, parse
from pack.cpus import cpus_of
from pack.rule import Finding, Params, Rule, about, unread
from pack.stack import Stack
from pack.workload import Workload

NAME = "batching"
_PLAIN = "give it as plain text"
_FLAG, _FILE, _PLATFORM = "enable_batching", "batching_parameters_file", "platform_config_file"
_PER_MODEL = "enable_per_model_batching_parameters"
_MOST_THREADS = 16.0
_THREADS_FLAGS = ("grpc_max_threads", "rest_api_num_threads")
_THREADS_PER_CPU = 4  # of each kind, where the flag is not given


def check(stack: Stack, params: Params) -> Iterator[Finding]:
    """Each server: its flags, then the file that they name."""
    for server in stack.servers:
        unknown = server.unread.get("command")
        yield from unread(server, "command", "Arguments", _PLAIN)
        if _is_true(server.flag(_FLAG), given=_FLAG in dict(server.flags())):
            yield from _of_flags(server)
            yield from _of_file(stack, server, params)
        elif server.flag(_FILE) is not None:
            what = f"--{_FILE}={server.flag(_FILE)}: without --{_FLAG}=true the server does not start"
            yield about(server, what, f"set --{_FLAG}=true, or leave the file out")
        elif params.environment == "prod" and not unknown and not server.says("unbatched"):
            what = f"--{_FLAG}: {server.flag(_FLAG) or 'unset'}: each request runs alone, and its GPU waits"
            fix = f"set --{_FLAG}=true and --{_FILE}; or say that its models cannot be batched: the label "
            yield about(server, what, f"{fix}tf-serving.unbatched: 'true' (`unbatched` of a pool)")


def _is_true(value: str | None, *, given: bool) -> bool:
    return given and (value is None or value.lower() in ("true", "1"))


def _of_flags(server: Workload) -> Iterator[Finding]:
    platform = server.flag(_PLATFORM)
    if platform:
        what = f"--{_PLATFORM}={platform}: the server then ignores --{_FLAG} and its file"
        yield about(server, what, f"leave --{_PLATFORM} out, or put the batching parameters into its file")
    if not server.flag(_FILE) and not server.unread.get("command"):
        what = f"--{_FILE}: unset: batches of up to 1000 and no waiting, which never fills one"
        yield about(server, what, f"set --{_FILE} to a file with max_batch_size and batch_timeout_micros")


def _of_file(stack: Stack, server: Workload, params: Params) -> Iterator[Finding]:
    path = server.flag(_FILE)
    if not path:
        return
    text = stack.files(server).get(path)
    if text is None:
        yield from _not_seen(stack, server, path)
        return
    try:
        found = parse(text)
    except ValueError as error:
        what = f"{path}: {error}: the server does not start"
        yield about(
            server, what, "write it as `max_batch_size { value: 32 }`, sizes as `allowed_batch_sizes: 8`"
        )
        return
    yield from _batch_threads(server, path, found, params)
    if not _is_true(server.flag(_PER_MODEL), given=_PER_MODEL in dict(server.flags())):
        yield from _numbers(server, path, found)
        yield from _sizes(server, path, found)
        yield from _can_fill(server, path, found)


def _not_seen(stack: Stack, server: Workload, path: str) -> Iterator[Finding]:
    """A file that nobody here writes cannot be judged; nor can one whose text is not known yet."""
    writers = [one for one in stack.on_machine(server.machine) if one.role == "publisher"]
    for one in (server, *writers):
        if one.unread.get("files"):
            unknown = ", ".join(str(found) for found in one.unread["files"])
            what = f"{path}: the text of a file of {one.name} is not known in preview: {unknown}"
            yield about(server, what, _PLAIN)
            return
    folder = any(mount.target and path.startswith(f"{mount.target.rstrip('/')}/") for mount in server.mounts)
    where = "on a mount whose files this stack does not write" if folder else "in no upload and on no mount"
    what = f"--{_FILE}={path}: is {where}: its values cannot be judged"
    yield about(
        server, what, "write it with the stack: an upload, a volume that a publisher fills, a ConfigMap"
    )


def _numbers(server: Workload, path: str, found: Parameters) -> Iterator[Finding]:
    if found.max_batch_size < 1:
        what = f"{path}: max_batch_size: {found.max_batch_size}: the server refuses it"
        yield about(server, what, "a number of examples, 1 or more")
    if found.timeout_micros <= 0:
        what = (
            f"{path}: batch_timeout_micros: {found.timeout_micros}: a batch never waits for a second request"
        )
        yield about(server, what, "1000 to 10000 (1 to 10 ms), within what clients bear")
    if found.enqueued < 1:
        what = f"{path}: max_enqueued_batches: {found.enqueued}: no batch may wait"
        yield about(server, what, "1 or more")
    if found.splitting:
        yield from _parts(server, path, found, found.execution_size or 0)


def _parts(server: Workload, path: str, found: Parameters, size: int) -> Iterator[Finding]:
    """What requests are split into."""
    if not size:
        what = f"{path}: max_execution_batch_size: unset: with splitting on, the server takes 0 for it"
        yield about(server, what, "set max_execution_batch_size, at most max_batch_size")
    elif size > found.max_batch_size:
        what = f"{path}: max_execution_batch_size: {size}: exceeds max_batch_size {found.max_batch_size}"
        yield about(server, what, "lower it, to one of allowed_batch_sizes")
    elif found.allowed and size not in found.allowed:
        what = f"{path}: max_execution_batch_size: {size}: is not one of {list(found.allowed)}"
        yield about(server, what, "take one of allowed_batch_sizes: batches are padded up to them")


def _sizes(server: Workload, path: str, found: Parameters) -> Iterator[Finding]:
    """The last size must be the largest batch; the server finds out as it loads, minutes after its start."""
    sizes = list(found.allowed)
    if not sizes:
        return
    if sizes[0] < 1 or any(later <= earlier for earlier, later in pairwise(sizes)):
        what = f"{path}: allowed_batch_sizes: {sizes}: must be positive and increase"
        yield about(server, what, "list each size once, ascending")
    elif sizes[-1] != found.max_batch_size:
        what = (
            f"{path}: allowed_batch_sizes: {sizes}: the last size must equal max_batch_size "
            f"{found.max_batch_size}: no model would load"
        )
        yield about(server, what, f"append {found.max_batch_size}, or make {sizes[-1]} the max_batch_size")


def _batch_threads(server: Workload, path: str, found: Parameters, params: Params) -> Iterator[Finding]:
    """Batches that run at once: if every request finds a free thread, none waits for company."""
    most = params.number("mostBatchThreads", _MOST_THREADS)
    if found.threads is None:
        what = f"{path}: num_batch_threads: unset: one for each CPU, so that nearly every request runs alone"
        yield about(server, what, "set num_batch_threads, 1 to 4 for one GPU")
    elif found.threads < 1:
        what = f"{path}: num_batch_threads: {found.threads}: the server does not start"
        yield about(server, what, "set num_batch_threads, 1 to 4 for one GPU")
    elif found.threads > most:
        what = f"{path}: num_batch_threads: {found.threads}: above {most:g}, requests find a free thread each"
        yield about(server, what, "1 to 4 for one GPU")


def _can_fill(server: Workload, path: str, found: Parameters) -> Iterator[Finding]:
    """Each request that waits for its batch holds a thread: fewer threads than its size never fill it."""
    counts = [_threads(server, name) for name in _THREADS_FLAGS]
    known = [count for count in counts if count is not None]
    if len(known) == len(counts) and sum(known) < found.max_batch_size:
        said = " + ".join(str(count) for count in known)
        what = (
            f"{path}: max_batch_size: {found.max_batch_size}: {said} requests in flight "
            "(--grpc_max_threads, --rest_api_num_threads) never fill it"
        )
        yield about(server, what, f"raise each to {2 * found.max_batch_size}, or lower max_batch_size")


def _threads(server: Workload, name: str) -> int | None:
    """What a flag says; else by the CPUs that the server may use, None where those are not known."""
    # By itself the server answers no REST; the image's script sets the port.
    port = server.flag("rest_api_port") or ("0" if server.entrypoint else "8501")
    if name == "rest_api_num_threads" and port == "0":
        return 0
    value = server.flag(name)
    if value is not None and re.fullmatch(r"\d+", value):
        return int(value)
    cpus = cpus_of(server.limits.cpu_set or "")
    return _THREADS_PER_CPU * len(cpus) if cpus else None


RULES = (
    Rule(
        name=NAME,
        scope="stack",
        protects="Requests are computed on in batches that the server accepts and that can fill",
        severity="medium",
        steps=(
            "Set --enable_batching=true and --batching_parameters_file; in the file a max_batch_size that is "
            "also the last of allowed_batch_sizes, a batch_timeout_micros above 0 and 1 to 4 "
            "num_batch_threads; and at least max_batch_size threads for gRPC and REST together."
        ),
        why=(
            "https://github.com/tensorflow/serving/issues/1312",
            "https://github.com/tensorflow/serving/issues/1440",
            "https://github.com/tensorflow/serving/issues/2111",
        ),
        exempt=(
            "A server whose models cannot be batched, by the label `tf-serving.unbatched: 'true'`. Outside "
            "prod batching may be off."
        ),
        levels={"local": "advisory", "staging": "mandatory", "prod": "mandatory"},
        check=check,
        schema={
            "mostBatchThreads": {
                "type": "number",
                "minimum": 1,
                "default": _MOST_THREADS,
                "description": "num_batch_threads at most: batches that run at once on one GPU",
            }
        },
    ),
)
