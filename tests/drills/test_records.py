"""What the drills say of the requests that were sent."""

import threading
import time

import pytest

from drills.load import run
from drills.records import ANSWERED, Request, share, summary


def _request(
    start: float,
    duration: float = 0.01,
    outcome: str = ANSWERED,
    version: str = "1",
    due: float | None = None,
) -> Request:
    return Request(
        due_s=start if due is None else due,
        start_s=start,
        duration_s=duration,
        outcome=outcome,
        served_by="gpu0",
        version=version,
    )


def test_a_failed_request_is_counted_and_its_time_is_not() -> None:
    found = summary([_request(0), _request(1), _request(2, duration=9, outcome="503")])
    assert (found.requests, found.failures, dict(found.failed)) == (3, 1, {"503": 1})
    assert found.p99_ms == pytest.approx(10)


def test_a_latency_begins_when_the_request_was_due() -> None:
    found = summary([_request(0), _request(5, due=2)])
    assert found.p99_ms == pytest.approx(3010)
    assert found.latest_s == 3


def test_a_client_that_waited_sends_what_became_due_meanwhile_and_says_since_when() -> None:
    stop, answers = threading.Event(), 0

    def ask() -> tuple[str, str, str]:
        nonlocal answers
        answers += 1
        if answers == 1:
            time.sleep(0.5)
        return ANSWERED, "", ""

    stop.set()
    sent = run([ask], rate=100, stop=stop, at_least=60)
    assert [round(later.due_s - sent[0].due_s, 6) for later in sent] == [n / 100 for n in range(60)]
    late = [request for request in sent if request.latency_s > 0.01]
    assert len(late) >= 45
    assert late[1].latency_s == pytest.approx(0.49, abs=0.05)
    assert late[1].duration_s < 0.1


def test_the_longest_gap_is_the_time_without_any_answer() -> None:
    requests = [_request(0), _request(1), _request(1.5, outcome="503"), _request(4), _request(4.5)]
    assert summary(requests).longest_gap_s == pytest.approx(3)


def test_no_answer_at_all_is_an_error_that_says_how_requests_ended() -> None:
    with pytest.raises(ValueError, match=r"none of 1 requests was answered: .*503"):
        summary([_request(0, outcome="503")])


def test_a_request_survives_being_written_and_read() -> None:
    written = _request(1.25, outcome="UNAVAILABLE: no healthy upstream")
    assert Request.of(written.line()) == written


def test_the_share_of_a_version_leaves_out_what_was_not_answered() -> None:
    requests = [_request(0), _request(1, version="2"), _request(2, outcome="503", version="2")]
    assert share(requests, "2") == (1, 2)


def test_clients_share_the_rate_and_go_on_until_they_have_sent_enough() -> None:
    stop = threading.Event()
    stop.set()
    began = time.monotonic()
    sent = run([lambda: (ANSWERED, "", "")] * 4, rate=200, stop=stop, at_least=60)
    spans = [request.start_s - began for request in sent]
    assert len(sent) >= 60
    assert spans[40] >= 40 / 200 * 0.9
