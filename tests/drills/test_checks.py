"""What the drills call a share, and how long requests failed."""

import pytest

from drills.checks import answered_at_the_end, between, failing_after_s, is_binomial
from drills.records import ANSWERED, Request
from drills.stage import Traffic


def _request(start_s: float, outcome: str = ANSWERED, duration_s: float = 0.5) -> Request:
    return Request(
        due_s=start_s, start_s=start_s, duration_s=duration_s, outcome=outcome, served_by="a", version="1"
    )


def _traffic(*requests: Request) -> Traffic:
    return Traffic(requests={"rest": list(requests)})


@pytest.mark.parametrize(
    ("hits", "percent"), [(0, 0), (2000, 100), (100, 5), (148, 5), (52, 5), (1111, 50), (889, 50)]
)
def test_a_share_that_chance_explains_is_accepted(hits: int, percent: float) -> None:
    is_binomial(hits, 2000, percent)


@pytest.mark.parametrize(("hits", "percent"), [(1, 0), (1999, 100), (149, 5), (51, 5), (1112, 50), (0, 5)])
def test_a_share_that_chance_does_not_explain_is_refused(hits: int, percent: float) -> None:
    with pytest.raises(AssertionError, match=f"{hits} of 2000, wanted {percent} %"):
        is_binomial(hits, 2000, percent)


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(AssertionError):
        is_binomial(0, 0, 0)


def test_how_long_requests_went_on_failing_is_counted_from_a_moment() -> None:
    assert failing_after_s(_traffic(_request(0, "503"), _request(5)), 2) == 0
    assert failing_after_s(_traffic(_request(0, "503"), _request(5, "503"), _request(6)), 2) == 3.5


def test_only_answered_requests_that_lie_wholly_within_a_time_count_for_it() -> None:
    within = _request(1)
    requests = [_request(0.9), within, _request(1.2, "503"), _request(1.6)]
    assert between(requests, 1, 2) == [within]


def test_a_failure_in_the_last_seconds_is_seen_and_an_earlier_one_is_forgiven() -> None:
    answered_at_the_end(_traffic(_request(0, "503"), _request(9), _request(10)))
    with pytest.raises(AssertionError):
        answered_at_the_end(_traffic(_request(0), _request(9, "503"), _request(10)))
