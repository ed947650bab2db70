"""What operators change on purpose."""

import ssl
import time
from pathlib import Path

from drills import edits
from drills.checks import all_answered, between, sent_twice
from drills.plays import ENOUGH, Play
from drills.records import share
from drills.stage import ENVOY_IMAGE, Rate, Stage, Traffic, variant
from tests.envoy import stand_ins
from tests.integration.drill import BackgroundUp, wait_until

_ROLL = 100_000


def batching_change(stage: Stage) -> Traffic:
    """The pool is rolled again and again, as long as the requests last."""
    before, twice = stage.serving, sent_twice(stage)
    # So many clients that all of them keep up.
    rate = Rate(rest=500, grpc=150, rest_clients=40, grpc_clients=20)
    with stage.traffic(rate, at_least=_ROLL) as traffic:
        for timeout in (2000, 1000):
            stage.change(edits.batching, timeout)
    all_answered(traffic)
    assert sent_twice(stage) == twice
    after = stage.serving
    assert {name for name in after if after[name] == before[name]} == {stage.envoy}
    return traffic


def image_change(stage: Stage) -> Traffic:
    """Another image, and the old one again."""
    first = stage.config["images"]["server"]
    other = variant(stage.engine, first, "other", "SIM_BASE_MS=4")
    twice = sent_twice(stage)
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        for image in (other, first):
            stage.change(edits.server_image, image)
    all_answered(traffic)
    assert sent_twice(stage) == twice
    return traffic


def slow_start(stage: Stage) -> Traffic:
    """A replaced instance that loads for a while gets nothing before it is loaded."""
    twice = sent_twice(stage)
    marker = stage.model / "1" / "simulator_load_seconds"
    marker.write_text("4")
    try:
        with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
            stage.change(edits.batching, 1500)
    finally:
        marker.unlink()
    all_answered(traffic)
    assert sent_twice(stage) == twice
    return traffic


def label_moved(stage: Stage) -> Traffic:
    """Clients ask for the label `stable`; it moves to version 2, and version 1 goes."""
    before = stage.serving
    with stage.traffic(Rate(), ("x-tf-model-version=stable",), at_least=ENOUGH) as traffic:
        time.sleep(2)
        begin = time.monotonic()
        stage.change(edits.version, 2)
        done = time.monotonic()
        time.sleep(2)
    all_answered(traffic)
    assert stage.serving == before
    of_old, _ = share(between(traffic.all, traffic.since_s, begin), "1")
    of_new, later = share(between(traffic.all, done, time.monotonic()), "2")
    assert of_old > 0
    assert of_new == later > 0
    return traffic


def envoy_upgraded(stage: Stage) -> Traffic:
    """Another image of Envoy, and the first again; clients ask until the one before has ended each time."""
    before = stage.serving
    first = stage.config["images"]["envoy"]
    other = variant(stage.engine, ENVOY_IMAGE, "other", "OTHER=1")
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        for image in (other, first):
            time.sleep(2)
            stage.change(edits.envoy_image, image)
            said = stage.engine.run("exec", stage.envoy, "cat", "/config/.said/envoy")
            assert said.splitlines()[:2] == ["serves", image]
            wait_until(lambda: len(stage.envoys()) == 1, "the one before has ended", patience_s=120)
    all_answered(traffic)
    assert stage.serving == before
    return traffic


def certificate_rotated(stage: Stage) -> Traffic:
    """Another certificate and key; clients make new connections all the time."""
    stage.config["front_end"]["tls"] = {}
    stage.write()
    set_certificate(stage, "first")
    stage.apply()
    before = stage.serving
    trusted = both_certificates(stage)
    with stage.traffic(Rate(), at_least=ENOUGH, ca=trusted) as traffic:
        time.sleep(2)
        assert _shown(stage, trusted) == stand_ins.certificate("first")[0]
        set_certificate(stage, "second")
        stage.apply()
        wait_until(lambda: _shown(stage, trusted) == stand_ins.certificate("second")[0], "the second one")
    all_answered(traffic)
    assert stage.serving == before
    return traffic


def both_certificates(stage: Stage) -> Path:
    """A file that clients trust."""
    trusted = stage.folder / "trusted.pem"
    trusted.write_text("".join(stand_ins.certificate(name)[0] for name in ("first", "second")))
    return trusted


def set_certificate(stage: Stage, name: str) -> None:
    """Put a certificate of the tests and its key into the stack file, which is written before."""
    values = zip(("tls_certificate", "tls_private_key"), stand_ins.certificate(name), strict=True)
    for key, value in values:
        stage.project.pulumi("config", "set", "--secret", "--stack", stage.stack, key, given=value)


def _shown(stage: Stage, trusted: Path) -> str:
    address = ("127.0.0.1", stage.config["front_end"]["rest_port"])
    return ssl.get_server_certificate(address, ca_certs=str(trusted), timeout=5)


def second_up(stage: Stage) -> Traffic:
    """Two `up` at once: one does its work, the other is refused with a reason."""
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        edits.batching(stage.config, 2500)
        stage.write()
        with BackgroundUp(stage, stage.folder / "first.log") as first:
            wait_until(lambda: "replacing" in first.said() or first.process.poll() is not None, "it rolls")
            second = stage.project.up(stage.stack)
            assert second.code != 0
            assert "locked" in second.output, second.output
            assert first.process.wait(timeout=300) == 0, first.said()
    all_answered(traffic)
    return traffic


NOTHING_LOST = "no failed request"
DRAINED = "and none is sent to a second instance"
PLAYS = (
    Play(
        number=1,
        title="Batching changed, rolled over four GPUs",
        holds=f"{NOTHING_LOST}, {DRAINED}; Envoy stays",
        run=batching_change,
    ),
    Play(number=2, title="Image changed", holds=f"{NOTHING_LOST}, {DRAINED}", run=image_change),
    Play(
        number=3,
        title="Label moved from version 1 to 2",
        holds=f"{NOTHING_LOST}; nothing restarts",
        run=label_moved,
    ),
    Play(
        number=6,
        title="Envoy upgraded",
        holds=f"{NOTHING_LOST}; nothing restarts",
        run=envoy_upgraded,
    ),
    Play(
        number=7,
        title="Certificate rotated",
        holds=f"{NOTHING_LOST}; nothing restarts",
        run=certificate_rotated,
    ),
    Play(
        number=12,
        title="Slow start of a replaced instance",
        holds=f"{NOTHING_LOST}, {DRAINED}",
        run=slow_start,
    ),
    Play(number=20, title="Two `up` at once", holds=f"one is refused; {NOTHING_LOST}", run=second_up),
)
