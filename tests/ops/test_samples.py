import json
from collections.abc import Iterable, Iterator

import pytest

from ops import samples
from ops.errors import UserError
from ops.samples import Question, ask, instances_of, questions_of

NAMES = ("local-gpu0", "local-gpu1")
QUESTION = Question("http://127.0.0.1:1/v1/models/m:predict", b"{}", NAMES)


def instance(name: str, pool: str, node: str, index: int) -> dict[str, object]:
    return {"name": name, "pool": pool, "node": node, "slot": f"gpu{index}", "gpu_uuids": [f"GPU-{index}"]}


OUTPUTS: dict[str, object] = {
    "rest_url": "http://a:8080",
    "rest_urls": ["http://a:8080", "http://b:8080"],
    "metrics_targets": [{"node": "a"}, {"node": "a"}, {"node": "b"}],
    "models": [
        {
            "name": "m",
            "pool": "main",
            "rest_urls": ["http://a:8080/v1/models/m", "http://b:8080/v1/models/m"],
        },
        {"name": "n", "pool": "hot", "rest_urls": ["http://b:8080/v1/models/n"]},
    ],
    "instances": [
        instance("a-gpu0", "main", "a", 0),
        instance("b-gpu0", "main", "b", 0),
        instance("b-gpu1", "hot", "b", 1),
    ],
}


class Envoy:
    """Answers in a fixed order; a request more than that fails the test."""

    def __init__(self, answers: Iterable[tuple[int, str | None, bytes] | OSError]) -> None:
        self._answers: Iterator[tuple[int, str | None, bytes] | OSError] = iter(answers)

    def send(self, url: str, body: bytes) -> tuple[int, str | None, bytes]:
        assert (url, body) == (QUESTION.url, QUESTION.body)
        answer = next(self._answers)
        if isinstance(answer, OSError):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "_PAUSE_S", 0.0)


def test_it_asks_until_every_instance_has_answered_and_not_once_more() -> None:
    envoy = Envoy([(200, NAMES[0], b""), (200, NAMES[0], b""), (200, NAMES[1], b"")])
    assert ask(QUESTION, envoy.send).by_instance == {NAMES[0]: 2, NAMES[1]: 1}


def test_a_refused_connection_and_an_error_answer_are_asked_again() -> None:
    envoy = Envoy(
        [OSError("refused"), (503, None, b"no healthy upstream"), (200, NAMES[0], b""), (200, NAMES[1], b"")]
    )
    answers = ask(QUESTION, envoy.send)
    assert sum(answers.by_instance.values()) == 2
    assert answers.trouble == "503 no healthy upstream"


def test_it_gives_up_after_a_bounded_number_of_requests() -> None:
    asked: list[str] = []

    def one_sided(url: str, _body: bytes) -> tuple[int, str | None, bytes]:
        asked.append(url)
        return 200, NAMES[0], b""

    answers = ask(QUESTION, one_sided)
    assert answers.by_instance[NAMES[1]] == 0
    assert len(asked) == answers.by_instance[NAMES[0]] <= 1000


def test_it_gives_up_when_its_patience_is_used_up() -> None:
    envoy = Envoy([OSError("refused")] * 3)
    assert ask(QUESTION, envoy.send, patience_s=0).by_instance == {}


def test_an_answer_that_names_nobody_does_not_count() -> None:
    answers = ask(QUESTION, Envoy([(200, None, b"{}")] * 1000).send)
    assert not answers.by_instance
    assert answers.trouble == "an answer without the header x-served-by"


def test_each_nodes_envoy_is_asked_for_its_own_instances_of_the_pool() -> None:
    assert [(question.url, question.instances) for question in questions_of(OUTPUTS)] == [
        ("http://a:8080/v1/models/m:predict", ("a-gpu0",)),
        ("http://b:8080/v1/models/m:predict", ("b-gpu0",)),
        ("http://b:8080/v1/models/n:predict", ("b-gpu1",)),
    ]


def test_an_instance_that_stays_silent_is_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_one(question: Question) -> samples.Answers:
        answers = samples.Answers(trouble="503 overloaded")
        answers.by_instance.update(name for name in question.instances if name != "b-gpu1")
        return answers

    monkeypatch.setattr(samples, "ask", only_one)
    with pytest.raises(UserError, match=r"did not answer:\n  b-gpu1 \(503 overloaded\)"):
        samples.show(OUTPUTS)


def test_who_answered_is_a_table_with_node_and_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_once(question: Question) -> samples.Answers:
        answers = samples.Answers()
        answers.by_instance.update(question.instances)
        return answers

    monkeypatch.setattr(samples, "ask", all_once)
    assert samples.show(OUTPUTS).splitlines()[:3] == [
        "1 predictions in 0.0 s from http://a:8080/v1/models/m:predict",
        "  instance  node  GPU          answers",
        "  a-gpu0    a     gpu0  GPU-0  1",
    ]


@pytest.mark.parametrize("broken", [{}, {"instances": "[secret]"}, {"instances": ["x"]}])
def test_outputs_of_another_shape_are_refused_with_what_was_found(broken: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"output `instances` is not a list of objects: ") as caught:
        instances_of(broken)
    assert json.dumps(broken.get("instances")) in str(caught.value)


def test_pools_are_shown_with_their_nodes_and_how_many_instances_are_there() -> None:
    more = {"instances": [*OUTPUTS["instances"], instance("a-gpu1", "main", "a", 1)]}  # type: ignore[misc]
    assert samples.pools(OUTPUTS | more) == ["main: a (2), b", "hot: b"]
