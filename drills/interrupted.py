"""`up` is killed in the middle of a change, with all that it started; the next `up` finishes it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from drills import edits
from drills.changes import NOTHING_LOST, both_certificates, set_certificate
from drills.checks import all_answered
from drills.plays import ENOUGH, Play
from drills.refusals import broken_version, route_to_nobody
from drills.stage import ENVOY_IMAGE, Rate, Stage, Traffic, variant
from tests.integration.drill import BackgroundUp, Config, prepare_as_make_up_does, wait_until

_BROKEN = 3


def _nothing(_config: Config) -> None:
    """The stack file stays as it is."""


@dataclass(frozen=True, kw_only=True)
class _Change:
    """An edit, and the container that is made (again) at the moment of the kill.

    What cannot be done is `while_`, and `undone` before the next `up`.
    """

    name: str
    edit: Callable[[Config], None] = _nothing
    made: str
    certificate: str = "first"
    while_: Callable[[Stage], AbstractContextManager[None]] = lambda _stage: nullcontext()
    undone: Callable[[Config], None] | None = None


def _changes(server_image: str, envoy_image: str) -> tuple[_Change, ...]:
    return (
        _Change(name="drain", edit=lambda config: edits.batching(config, 2500), made="gpu0-drain"),
        _Change(name="batching", edit=lambda config: edits.batching(config, 3000), made="gpu1"),
        _Change(name="image", edit=lambda config: edits.server_image(config, server_image), made="gpu2"),
        _Change(name="label", edit=lambda config: edits.version(config, 2), made="main-publisher"),
        _Change(
            name="bad version",
            edit=lambda config: edits.version(config, _BROKEN),
            made="main-publisher",
            while_=lambda stage: broken_version(stage, _BROKEN),
            undone=lambda config: edits.version(config, 2),
        ),
        _Change(name="pool", edit=lambda config: edits.canary(config, 5), made="gpu4"),
        _Change(name="canary", edit=lambda config: edits.canary(config, 40), made="envoy-publisher"),
        _Change(
            name="route",
            edit=lambda config: edits.versions_header(config, "x-version"),
            made="envoy-acceptance",
        ),
        _Change(name="refused route", made="envoy-publisher", while_=route_to_nobody),
        _Change(name="certificate", made="envoy-publisher", certificate="second"),
        _Change(
            name="Envoy",
            edit=lambda config: edits.envoy_image(config, envoy_image),
            made="envoy-acceptance",
            certificate="second",
        ),
    )


def killed(stage: Stage) -> Traffic:
    """Each kind of change is killed once and then done by `up`."""
    server = variant(stage.engine, stage.config["images"]["server"], "newer", "SIM_BASE_MS=4")
    envoy = variant(stage.engine, ENVOY_IMAGE, "newer", "NEWER=1")
    stage.config["front_end"]["tls"] = {}
    _write(stage, "first")
    stage.apply()
    with stage.traffic(Rate(), at_least=ENOUGH, ca=both_certificates(stage)) as traffic:
        for change in _changes(server, envoy):
            change.edit(stage.config)
            _write(stage, change.certificate)
            with change.while_(stage):
                _kill(stage, change)
            if change.undone is not None:
                change.undone(stage.config)
                _write(stage, change.certificate)
            prepare_as_make_up_does(stage)
            stage.up()
    all_answered(traffic)
    return traffic


def _write(stage: Stage, certificate: str) -> None:
    stage.write()
    set_certificate(stage, certificate)


def _kill(stage: Stage, change: _Change) -> None:
    name = f"{stage.stack}.local-{change.made}"
    before = stage.engine.ids().get(name)
    with BackgroundUp(stage, stage.folder / f"{change.name}.log") as running:
        wait_until(
            lambda: (
                running.process.poll() is not None or stage.engine.ids().get(name) not in (None, "", before)
            ),
            f"{name} made",
            120,
        )
        assert running.process.poll() is None, running.said()


PLAYS = (
    Play(
        number=16,
        title="`up` killed in the middle of a drain, batching rolled, another image, a label moved, a bad "
        "version, a pool added, a canary, routes, refused routes, a certificate, Envoy upgraded",
        holds=f"{NOTHING_LOST}; each time the next `up` heals",
        run=killed,
    ),
)
