"""Where requests go changes: canaries, dedicated pools, standby, overload."""

import time

from drills import edits
from drills.changes import NOTHING_LOST
from drills.checks import all_answered, all_serve, between, is_binomial
from drills.plays import ENOUGH, Play
from drills.records import ANSWERED, share
from drills.stage import SERVER_IMAGE, Rate, Stage, Traffic, variant
from tests.integration import predict

_STEPS = (0, 5, 50, 100, 0)
_WINDOW_S = 5.0
# Two protocols ask at once; each execution takes a batch of up to four, 40 ms a request.
_SLOW = ("SIM_BASE_MS=0", "SIM_PER_EXAMPLE_MS=40")
_CAPACITY = 100
_OVERLOAD_S = 30
# A full batching queue, or over gRPC no thread to take the request.
_REFUSALS = ("503", "UNAVAILABLE", "RESOURCE_EXHAUSTED")
_IN_TIME_S = 15  # half of what a request may take
_MEASURED_S = 10
_RECOVERY_S = 2.0


def canary(stage: Stage) -> Traffic:
    """A pool with version 2 gets more and more of the requests, and none again."""
    stage.change(edits.canary, _STEPS[0])
    before = stage.serving
    windows: list[tuple[float, float]] = []
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        for percent in _STEPS:
            if windows:
                stage.change(edits.canary, percent)
            begin = time.monotonic()
            time.sleep(_WINDOW_S)  # what is observed
            windows.append((begin, time.monotonic()))
    all_answered(traffic)
    assert stage.serving == before
    for percent, (begin, end) in zip(_STEPS, windows, strict=True):
        hits, requests = share(between(traffic.all, begin, end), "2")
        is_binomial(hits, requests, percent)
        traffic.seen.append(f"{percent} %: {100 * hits / requests:.1f} % of {requests}")
    return traffic


def route(stage: Stage) -> Traffic:
    """A pool for hot requests comes, with a route of its own, and goes."""
    before = stage.serving
    port = stage.config["front_end"]["rest_port"]
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        stage.change(edits.dedicated, "x-class")
        answer = predict.rest(port, headers={"x-class": "hot"})
        assert answer.served_by == "local-gpu4"
        stage.change(edits.dedicated, None)
        answer = predict.rest(port, headers={"x-class": "hot"})
        assert answer.served_by in {f"local-gpu{gpu}" for gpu in range(4)}
    all_answered(traffic)
    assert stage.serving == before
    return traffic


def standby(stage: Stage) -> Traffic:
    """Two of four instances are killed and stay away for a while."""
    stage.change(edits.standby, "spare")
    killed = [stage.container(gpu) for gpu in (1, 2)]
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        time.sleep(2)
        stage.engine.run("kill", *killed)  # the engine leaves them down, as somebody wanted it so
        time.sleep(10)  # until their health checks failed; before, Envoy tries them now and then
        begin = time.monotonic()
        time.sleep(_WINDOW_S)  # what is observed
        end = time.monotonic()
        stage.engine.run("start", *killed)
        stage.wait_healthy(1, 2)
        time.sleep(10)  # until Envoy lets them in again
    all_answered(traffic)
    of_standby = [request.served_by == "local-gpu4" for request in between(traffic.all, begin, end)]
    assert 0.4 < sum(of_standby) / len(of_standby) < 0.6, (sum(of_standby), len(of_standby))
    all_serve(traffic, 4)
    traffic.seen.append(f"standby took {100 * sum(of_standby) / len(of_standby):.1f} %")
    return traffic


def overload(stage: Stage) -> Traffic:
    """Four times what the instances can do, for half a minute, beside clients that ask now and then."""
    slow = variant(stage.engine, SERVER_IMAGE, "slow", *_SLOW)
    stage.change(edits.slow_instances, slow)
    many = Rate(rest=3 * _CAPACITY, grpc=_CAPACITY, rest_clients=240, grpc_clients=80)
    capacity = _measured_capacity(stage)
    # A machine with other work to do is slower at all of it.
    slower = max(1.0, _CAPACITY / capacity)
    with stage.traffic(Rate(rest=10, grpc=10)) as steady:
        with stage.traffic(many) as traffic:
            time.sleep(_OVERLOAD_S)
        over = time.monotonic()
        time.sleep(_RECOVERY_S + 5)
    refused = [request for request in traffic.all if request.outcome != ANSWERED]
    others = [request for request in refused if request.outcome.partition(":")[0] not in _REFUSALS]
    assert not others, [
        (request.outcome, request.start_s - traffic.since_s, request.duration_s) for request in others[:9]
    ]
    answered = len(traffic.all) - len(refused)
    assert len(traffic.all) > 2 * answered, (len(traffic.all), answered)
    assert answered > 0.7 * capacity * _OVERLOAD_S, (answered, capacity)
    longest_refusal = max(request.duration_s for request in refused)
    longest_answer = max(request.duration_s for request in traffic.all if request.outcome == ANSWERED)
    longest = max(longest_refusal, longest_answer)
    assert longest < _IN_TIME_S * slower, (longest_refusal, longest_answer, slower)
    recovered = [request for request in steady.all if request.start_s > over + _RECOVERY_S]
    assert recovered
    assert {request.outcome for request in recovered} == {ANSWERED}
    late = [request.end_s - over for request in steady.all if request.outcome != ANSWERED]
    traffic.seen.append(f"capacity {capacity:.0f} a second")
    traffic.seen.append(
        f"{len(traffic.all) / _OVERLOAD_S:.0f} asked a second, {answered / _OVERLOAD_S:.0f} answered"
    )
    traffic.seen.append(f"longest answer {longest_answer:.2f} s, refusal {longest_refusal:.2f} s")
    traffic.seen.append(f"last refusal {max([0.0, *late]):.1f} s after the end")
    return traffic


def _measured_capacity(stage: Stage) -> float:
    """Requests answered a second where no more are sent than the instances can do at best."""
    rate = Rate(rest=0.75 * _CAPACITY, grpc=0.25 * _CAPACITY, rest_clients=24, grpc_clients=8)
    with stage.traffic(rate) as traffic:
        time.sleep(_MEASURED_S)  # what is measured
    answered = [request for request in traffic.all if request.outcome == ANSWERED]
    span_s = max(request.end_s for request in traffic.all) - min(request.start_s for request in traffic.all)
    return len(answered) / span_s


PLAYS = (
    Play(
        number=4,
        title="Canary 0, 5, 50, 100, 0 %",
        holds=f"{NOTHING_LOST}; shares within binomial bounds; nothing restarts",
        run=canary,
    ),
    Play(
        number=5,
        title="Dedicated pool and its route added and removed",
        holds=f"{NOTHING_LOST}; nothing else restarts",
        run=route,
    ),
    Play(
        number=9,
        title="Two of four killed, standby takes over",
        holds=f"{NOTHING_LOST}; about half goes to the standby, none afterwards",
        run=standby,
    ),
    Play(
        number=17,
        title="Overload, four times the capacity for 30 s",
        holds=f"only {', '.join(_REFUSALS)}, all within {_IN_TIME_S} s (longer on a machine that is as much "
        f"slower); all answered {_RECOVERY_S:.0f} s afterwards",
        run=overload,
    ),
)
