"""What cannot be done is refused, and what serves goes on."""

from collections.abc import Iterator
from contextlib import contextmanager

from drills import edits
from drills.changes import NOTHING_LOST
from drills.checks import all_answered
from drills.plays import ENOUGH, Play
from drills.stage import Rate, Stage, Traffic
from ops.hosts import Host
from ops.unwell import report

# Stands before the program: routes that we take and Envoy does not.
_SABOTAGE = """
from components import envoy_delivery
_rendered = envoy_delivery.envoy_files
envoy_delivery.envoy_files = lambda plan: {
    name: text.replace('cluster: "rest-main"', 'cluster: "nobody"') if name == "rds-rest.yaml" else text
    for name, text in _rendered(plan).items()
}
"""


def bad_version(stage: Stage) -> Traffic:
    """Version 3 cannot be loaded; it is published all the same, and taken back."""
    before = stage.serving
    with broken_version(stage, 3), stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        edits.version(stage.config, 3)
        stage.write()
        _refused(stage, "cannot load version 3 of half_plus_two")
        stage.change(edits.version, 1)
    all_answered(traffic)
    assert {request.version for request in traffic.all} == {"1"}
    assert stage.serving == before
    return traffic


@contextmanager
def broken_version(stage: Stage, number: int) -> Iterator[None]:
    """The model has this version meanwhile, and no server can load it."""
    broken = stage.model / str(number)
    broken.mkdir()
    (broken / "saved_model.pb").write_text("")
    try:
        yield
    finally:
        (broken / "saved_model.pb").unlink()
        broken.rmdir()


def configuration_refused(stage: Stage) -> Traffic:
    """Envoy is handed a route to a cluster that there is not."""
    before = stage.serving
    with stage.traffic(Rate(), at_least=ENOUGH) as traffic:
        with route_to_nobody(stage):
            _refused(stage, "route: unknown cluster 'nobody'")
        stage.apply()
    all_answered(traffic)
    assert stage.serving == before
    return traffic


@contextmanager
def route_to_nobody(stage: Stage) -> Iterator[None]:
    """The program renders meanwhile a route that Envoy refuses."""
    program = stage.project.folder / "__main__.py"
    sound = program.read_text()
    docstring, rest = sound.split("\n", 1)
    program.write_text(f"{docstring}\n{_SABOTAGE}{rest}")
    try:
        yield
    finally:
        program.write_text(sound)


def _refused(stage: Stage, reason: str) -> None:
    failed = stage.project.up(stage.stack, "--suppress-outputs")
    assert failed.code != 0
    said = report(stage.stack, {"local": Host(stage.engine.docker_host)}, failed=True)
    assert reason in said, said


PLAYS = (
    Play(
        number=13,
        title="Bad model version published",
        holds=f"{NOTHING_LOST}; the old one serves, `up` says why, the next `up` heals",
        run=bad_version,
    ),
    Play(
        number=15,
        title="Envoy rejects a configuration",
        holds=f"{NOTHING_LOST}; the old one serves, `up` says why, the next `up` heals",
        run=configuration_refused,
    ),
)
