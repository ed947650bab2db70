"""Asks a deployed stack for predictions until each of its instances has answered."""

import json
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ops.errors import UserError

# Sent by Envoy with every answer: the name of the instance that gave it.
SERVED_BY = "x-served-by"
_PATIENCE_S = 60.0
_ROUNDS = 400
_PAUSE_S = 0.2


@dataclass(frozen=True)
class Instance:
    """An instance of the stack's outputs."""

    name: str
    pool: str
    node: str
    gpu: str


@dataclass(frozen=True)
class Question:
    """What to send, and which instances may answer it."""

    url: str
    body: bytes
    instances: tuple[str, ...]


@dataclass
class Answers:
    """How many requests each instance answered, and the last thing that went wrong."""

    by_instance: Counter[str] = field(default_factory=Counter)
    trouble: str = ""
    seconds: float = 0.0


Send = Callable[[str, bytes], tuple[int, str | None, bytes]]


def send(url: str, body: bytes) -> tuple[int, str | None, bytes]:
    """Post JSON: status, who served it, body. Raises OSError where nothing answers."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - from outputs
    # A proxy of the environment has no business between this machine and its own stack.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as answer:
            return answer.status, answer.headers.get(SERVED_BY), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers.get(SERVED_BY), error.read()


def instances_of(outputs: Mapping[str, object]) -> list[Instance]:
    """The instances that the outputs name."""
    return [
        Instance(
            name=str(item["name"]),
            pool=str(item["pool"]),
            node=str(item["node"]),
            gpu=f"{item['slot']}  {', '.join(texts(item, 'gpu_uuids'))}",
        )
        for item in _objects(outputs, "instances")
    ]


def questions_of(outputs: Mapping[str, object]) -> list[Question]:
    """One question for each model and node: each Envoy knows its own node's instances only."""
    rest_urls = dict(zip(_nodes(outputs), texts(outputs, "rest_urls"), strict=False))
    questions = []
    for model in _objects(outputs, "models"):
        urls = texts(model, "rest_urls")
        for url in urls:
            nodes = {node for node, base in rest_urls.items() if url.startswith(f"{base}/")}
            may = tuple(i.name for i in instances_of(outputs) if i.pool == model["pool"] and i.node in nodes)
            questions.append(Question(f"{url}:predict", b'{"instances": [1.0, 2.0, 5.0]}', may))
    return questions


def metrics_url(outputs: Mapping[str, object]) -> str:
    """Where the first node's Envoy tells its metrics."""
    target = _objects(outputs, "metrics_targets")[0]
    return f"http://{target['address']}{target['path']}"


def ask(question: Question, send: Send = send, patience_s: float = _PATIENCE_S) -> Answers:
    """Ask until every instance has answered with 200, or patience or the number of rounds is used up."""
    answers = Answers()
    started = time.monotonic()
    waiting = set(question.instances)
    for _ in range(_ROUNDS):
        if not waiting or time.monotonic() - started > patience_s:
            break
        try:
            status, name, body = send(question.url, question.body)
        except OSError as error:
            answers.trouble = str(error)
            time.sleep(_PAUSE_S)
            continue
        if status != 200:
            answers.trouble = f"{status} {body[:200].decode(errors='replace').strip()}"
            time.sleep(_PAUSE_S)
        elif name is None:
            answers.trouble = f"an answer without the header {SERVED_BY}"
        else:
            answers.by_instance[name] += 1
            waiting.discard(name)
    answers.seconds = time.monotonic() - started
    return answers


def show(outputs: Mapping[str, object]) -> str:
    """Ask all questions and describe who answered; raises UserError where an instance did not."""
    lines = []
    silent: list[str] = []
    instances = {instance.name: instance for instance in instances_of(outputs)}
    for question in questions_of(outputs):
        answers = ask(question)
        missing = [name for name in question.instances if not answers.by_instance[name]]
        silent += [f"{name} ({answers.trouble or 'other instances answered'})" for name in missing]
        total = sum(answers.by_instance.values())
        lines.append(f"{total} predictions in {answers.seconds:.1f} s from {question.url}")
        rows = [
            (name, instances[name].node, instances[name].gpu, str(answers.by_instance[name]))
            for name in question.instances
        ]
        lines += table(("instance", "node", "GPU", "answers"), rows)
    if silent:
        raise UserError(
            "\n".join(
                [
                    *lines,
                    "",
                    "These instances did not answer:",
                    *(f"  {line}" for line in silent),
                    "`make heal`, then `make up`, makes anew what was stopped or removed.",
                ]
            )
        )
    return "\n".join(lines)


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Rows under a head, in columns, indented."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _objects(source: Mapping[str, object], key: str) -> list[dict[str, object]]:
    found = source.get(key)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise UserError(f"The stack's output `{key}` is not a list of objects: {json.dumps(found)[:200]}")
    return found


def pools(outputs: Mapping[str, object]) -> list[str]:
    """Each pool with its nodes, and how many instances are there where they are told apart."""
    count = Counter((str(one["pool"]), str(one["node"])) for one in _objects(outputs, "instances"))
    nodes: dict[str, list[str]] = {}
    for (pool, node), many in count.items():
        nodes.setdefault(pool, []).append(f"{node} ({many})" if many > 1 else node)
    return [f"{pool}: {', '.join(there)}" for pool, there in nodes.items()]


def texts(source: Mapping[str, object], key: str) -> list[str]:
    """An output that is a list of texts; raises UserError for another one."""
    found = source.get(key)
    if not isinstance(found, list):
        raise UserError(f"The stack's output `{key}` is not a list: {json.dumps(found)[:200]}")
    return [str(item) for item in found]


def _nodes(outputs: Mapping[str, object]) -> list[str]:
    return list(dict.fromkeys(str(item["node"]) for item in _objects(outputs, "metrics_targets")))
