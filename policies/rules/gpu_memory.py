"""How much of its GPU a server takes, said in a way that the server reads."""

import re
from collections import defaultdict
from collections.abc import Iterator

from pack.facts import facts
from pack.rule import EVERYWHERE, Finding, Params, Rule, about, unread
from pack.slots import slots
from pack.stack import Stack
from pack.workload import Workload

NAME = "gpu-memory"
SHARED = "gpu-memory-shared"
_GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
_FRACTION = "per_process_gpu_memory_fraction"
_MOST = 0.95
_CONTEXT_MIB = 1024
_USUAL_SLOT_MIB = 40 * 1024
_SAY = (
    f"set the variable {_GROWTH}=true, or --{_FRACTION}=<above 0, at most {_MOST}>, or both (grow up to it)"
)
_PLAIN = "give it as a plain value"
_ABOUT_GPU_MEMORY = re.compile(
    r"gpu.*(memory|growth|fraction)|(memory|growth)_fraction|allow_growth", re.IGNORECASE
)


def check(stack: Stack, _params: Params) -> Iterator[Finding]:
    """Each server by itself, and what may be one."""
    for server in stack.workloads:
        if not (server.is_server or server.unread.get("template")):
            continue
        if not (server.gpus or server.unread.get("gpus")):
            continue
        yield from unread(server, "env", "GPU memory", _PLAIN)
        yield from unread(server, "command", "GPU memory", _PLAIN)
        yield from _nothing_invented(server)
        yield from _is_said(server)


def fraction(server: Workload) -> float | None:
    """The fraction that a server is told, None where none is or it is no number."""
    try:
        found = float(server.flag(_FRACTION) or "")
    except ValueError:
        return None
    return found or None  # 0 is the flag's default: no limit


def _is_said(server: Workload) -> Iterator[Finding]:
    growth, text = server.env.get(_GROWTH), server.flag(_FRACTION)
    said = fraction(server)
    if growth is not None and growth not in ("true", "false"):
        what = f"{_GROWTH}: {growth}: TensorFlow ignores what is not exactly true or false"
        yield about(server, what, f"write {_GROWTH}=true")
    if text is not None and (said is None or not 0 < said <= _MOST) and not (said is None and _is_zero(text)):
        what = f"--{_FRACTION}: {text}: is no number above 0 and at most {_MOST}"
        yield about(server, what, f"{_SAY}; the CUDA context needs the rest")
    elif growth != "true" and said is None and not (server.unread.get("env") or server.unread.get("command")):
        what = f"{_GROWTH}: {growth or 'unset'}: by default it takes all memory of its GPU at once"
        yield about(server, what, _SAY)


def _is_zero(text: str) -> bool:
    try:
        return float(text) == 0
    except ValueError:
        return False


def _nothing_invented(server: Workload) -> Iterator[Finding]:
    """The server prints an unknown flag and carries on without it, and reads no such variable at all."""
    invented = facts().invented_variables
    for name in server.env:
        if name in invented and _ABOUT_GPU_MEMORY.search(name):
            what = f"variable {name}: no TensorFlow Serving reads it"
            yield about(server, what, invented[name])
    for name, value in server.flags():
        if name not in facts().flags and _ABOUT_GPU_MEMORY.search(name):
            what = f"--{name}={value or ''}: no version has this flag; the server would run without"
            yield about(server, what, _SAY)


def check_shared(stack: Stack, _params: Params) -> Iterator[Finding]:
    """Servers on one slot say how much they take, and leave room for their CUDA contexts."""
    sharers: dict[tuple[str | None, str], list[Workload]] = defaultdict(list)
    for server in stack.servers:
        for slot in slots(server, stack.node(server)):
            sharers[server.machine if slot.is_index else None, slot.id].append(server)
    for (_, card), servers in sharers.items():
        if len(servers) > 1:
            yield from _room(stack, card, servers)
    yield from _two_versions(stack)


def _most_shared(stack: Stack, servers: list[Workload]) -> float:
    """What their fractions may come to: each process holds up to 1 GiB (its CUDA context) outside.

    Of a slot whose size no label tells 40 GiB are taken. Settings have the same (model_sizes.py).
    """
    said = (_said_mib(stack, server, "slot-mib") for server in servers)
    slot = min((mib for mib in said if mib), default=_USUAL_SLOT_MIB)
    return round(max(0, min(_MOST, 1 - len(servers) * _CONTEXT_MIB / slot)), 4)


def _room(stack: Stack, card: str, servers: list[Workload]) -> Iterator[Finding]:
    said = [(server, fraction(server)) for server in servers]
    for server, part in said:
        if part is None:
            others = ", ".join(other.name for other in servers if other is not server)
            what = f"--{_FRACTION}: unset: it shares GPU {card} with {others}"
            yield about(server, what, f"set --{_FRACTION} on each of them")
    total = round(sum(part for _, part in said if part is not None), 6)
    if all(part is not None for _, part in said) and total > (most := _most_shared(stack, servers)):
        last = servers[-1]
        parts = " + ".join(f"{part} ({server.name})" for server, part in said)
        what = f"--{_FRACTION}: {parts} on GPU {card} is {total}: above {most} no room is left"
        fix = "lower the fractions: each process holds up to 1 GiB outside of its own (the CUDA context)"
        yield about(last, what, fix)


def _two_versions(stack: Stack) -> Iterator[Finding]:
    """While a model is updated in place both versions are loaded. Judged where labels tell the sizes."""
    for server in stack.servers:
        needed, slot, reserve = (_said_mib(stack, server, name) for name in _SIZES)
        if needed is None or slot is None:
            continue
        part = fraction(server)
        without_one = int(slot * _MOST) if reserve is None else slot - reserve
        usable = without_one if part is None else int(slot * part)
        if needed > usable:
            what = f"models: {needed} MiB while new versions replace old ones: of its GPU it has {usable} MiB"
            fix = "a larger slot or fraction, fewer models, or fewer versions of them at once"
            yield about(server, what, fix)


_SIZES = ("models-mib", "slot-mib", "slot-reserve-mib")


def _said_mib(stack: Stack, server: Workload, name: str) -> int | None:
    """A size, from the server's own label, else from that of whatever publishes its pool's files there."""
    pool = server.label("pool")
    of_pool = (
        one
        for one in stack.on_machine(server.machine)
        if pool and one.role == "publisher" and one.label("pool") == pool
    )
    said = next((text for one in (server, *of_pool) if (text := one.label(name)) is not None), "")
    return int(said) if said.isdecimal() else None


_WHY = (
    "https://github.com/tensorflow/serving/issues/1929",
    "https://github.com/tensorflow/serving/issues/1668",
    "https://github.com/tensorflow/serving/issues/2097",
)
RULES = (
    Rule(
        name=NAME,
        scope="resource",
        protects="A model server says how much of its GPU it takes, in words that it reads",
        severity="high",
        steps=f"{_SAY[0].upper()}{_SAY[1:]}. Variables such as TF_GPU_MEMORY_FRACTION have no effect.",
        why=_WHY,
        exempt="A server without a GPU has nothing to say.",
        levels=EVERYWHERE,
        check=check,
    ),
    Rule(
        name=SHARED,
        scope="stack",
        protects="What servers take fits their GPU, with room for CUDA contexts and for two versions",
        severity="high",
        steps=(
            f"Set --{_FRACTION} on every server of the GPU so that together they stay at or below {_MOST}, "
            "and 1 GiB for each of them stays free."
        ),
        why=_WHY,
        exempt=(
            "None. Sizes of models are judged where labels of a server, or of the container that publishes "
            "its pool's files, tell them: `tf-serving.models-mib` (all that is loaded at once: of a model "
            "that is updated in place one version more than is kept), `tf-serving.slot-mib` (its GPU, or "
            "part of one), and `tf-serving.slot-reserve-mib` (what TensorFlow leaves alone without a "
            "fraction; unset: 5 %)."
        ),
        levels=EVERYWHERE,
        check=check_shared,
    ),
)
