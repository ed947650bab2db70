"""`up` is killed in the middle of a change, with all that it started; the next `up` finishes it."""

from collections.abc import Callable
from dataclasses import dataclass

from drills import edits
from drills.changes import NOTHING_LOST
from drills.checks import all_answered
from drills.plays import ENOUGH, Play
from drills.stage import Rate, Stage, Traffic
from tests.integration.drill import BackgroundUp, Config, prepare_as_make_up_does, wait_until


@dataclass(frozen=True, kw_only=True)
class _Change:
    """An edit, and the container whose replacement is the moment of the kill."""

    name: str
    edit: Callable[[Config], None]
    replaced: str


_CHANGES = (
    _Change(name="batching", edit=lambda config: edits.batching(config, 3000), replaced="gpu1"),
    _Change(name="label", edit=lambda config: edits.version(config, 2), replaced="main-publisher"),
    _Change(name="canary", edit=lambda config: edits.canary(config, 40), replaced="envoy-publisher"),
    _Change(
        name="route",
        edit=lambda config: edits.versions_header(config, "x-version"),
        replaced="envoy-acceptance",
    ),
)


def killed(stage: Stage) -> Traffic:
    """Each kind of change is killed once and then done by `up`."""
    stage.change(edits.canary, 5)
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        for change in _CHANGES:
            change.edit(stage.config)
            stage.write()
            _kill(stage, change)
            prepare_as_make_up_does(stage)
            stage.up()
    all_answered(traffic)
    return traffic


def _kill(stage: Stage, change: _Change) -> None:
    name = f"{stage.stack}.local-{change.replaced}"
    before = stage.engine.ids()[name]
    with BackgroundUp(stage, stage.folder / f"{change.name}.log") as running:
        wait_until(
            lambda: (
                running.process.poll() is not None or stage.engine.ids().get(name, before) not in ("", before)
            ),
            f"{name} replaced",
            120,
        )
        assert running.process.poll() is None, running.said()


PLAYS = (
    Play(
        number=16,
        title="`up` killed in the middle: batching rolled, label moved, canary and route changed",
        holds=f"{NOTHING_LOST}; each time the next `up` heals",
        run=killed,
    ),
)
