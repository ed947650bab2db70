"""`python -m drills [NUMBER ...]`: plays the drills, and writes docs/drills.md."""

import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from types import TracebackType

from bench.measure import machine
from drills import changes, failures, interrupted, outages, refusals, releases, report, versions
from drills.plays import Play
from drills.stage import Stage, stage
from toolchain.pulumi import ensure
from toolchain.tools import Toolchain

PLAYS = (
    *changes.PLAYS,
    *releases.PLAYS,
    *versions.PLAYS,
    *failures.PLAYS,
    *refusals.PLAYS,
    *interrupted.PLAYS,
    *outages.PLAYS,
)


class Stages:
    """A stage as every drill begins, again and again: the one before where that went well, else a new one."""

    def __init__(self, toolchain: Toolchain) -> None:
        self._toolchain = toolchain
        self._made = 0
        self._stage: Stage | None = None
        self._open = ExitStack()

    def __enter__(self) -> "Stages":
        self._folder = Path(self._open.enter_context(tempfile.TemporaryDirectory()))
        self._of_stage = ExitStack()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()
        self._open.close()

    def ready(self) -> Stage:
        """The stage for the next drill."""
        if self._stage is not None:
            try:
                self._stage.reset()
            except Exception:  # noqa: BLE001 - whatever it is, another stage is needed
                traceback.print_exc()
                self.drop()
        if self._stage is None:
            self._made += 1
            made = stage(self._folder / f"stage{self._made}", self._toolchain)
            self._stage = self._of_stage.enter_context(made)
        return self._stage

    def drop(self) -> None:
        """Take the stage away: the next one is another."""
        self._stage = None
        try:
            self._of_stage.close()
        except Exception:  # noqa: BLE001 - what is left there is in nobody's way
            traceback.print_exc()


def main(wanted: Sequence[str]) -> int:
    """Play those whose numbers are given, or all; the exit status."""
    numbers = {str(play.number) for play in PLAYS}
    if unknown := sorted(set(wanted) - numbers):
        sys.stderr.write(
            f"no such drill: {', '.join(unknown)}; there are {', '.join(sorted(numbers, key=int))}\n"
        )
        return 2
    lines: dict[int, str] = {}
    failed = []
    with Stages(ensure(plugins=["docker"])) as stages:
        for play in PLAYS:
            if wanted and str(play.number) not in wanted:
                continue
            line, well = _play(play, stages)
            lines[play.number] = line
            if not well:
                failed.append(play.number)
            report.keep(lines, f"Measured {datetime.now().astimezone().date().isoformat()}, {machine()}.")
    if failed:
        sys.stderr.write(f"Failed: {', '.join(map(str, failed))}\n")
    return 1 if failed else 0


def _play(play: Play, stages: Stages) -> tuple[str, bool]:
    begin = time.monotonic()
    sys.stdout.write(f"{play.number}. {play.title} ...\n")
    sys.stdout.flush()
    try:
        traffic = play.run(stages.ready())
    except Exception:  # noqa: BLE001 - whatever it is, the drill failed, and the next one is to be played
        traceback.print_exc()
        stages.drop()
        return report.failed(play), False
    line = report.row(play, traffic)
    sys.stdout.write(f"{line}\n({time.monotonic() - begin:.0f} s)\n")
    sys.stdout.flush()
    return line, True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
