"""`python -m drills [NUMBER ...]`: plays the drills, and writes docs/drills.md."""

import sys
import tempfile
import traceback
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from bench.measure import machine
from drills import report
from drills.scenarios import PLAYS, Play
from drills.stage import Stage, stage
from toolchain.pulumi import ensure


def main(wanted: Sequence[str]) -> int:
    """Play those whose numbers are given, or all; the exit status."""
    plays = [play for play in PLAYS if not wanted or str(play.number) in wanted]
    toolchain = ensure(plugins=["docker"])
    lines: dict[int, str] = {}
    failed = []
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder) / "stage", toolchain) as made:
        for play in plays:
            line, well = _play(play, made)
            lines[play.number] = line
            if not well:
                failed.append(play.number)
            report.keep(lines, f"Measured {datetime.now().astimezone().date().isoformat()}, {machine()}.")
    if failed:
        sys.stderr.write(f"Failed: {', '.join(map(str, failed))}\n")
    return 1 if failed else 0


def _play(play: Play, made: Stage) -> tuple[str, bool]:
    sys.stdout.write(f"{play.number}. {play.title} ...\n")
    sys.stdout.flush()
    try:
        traffic = play.run(made)
    except AssertionError:
        traceback.print_exc()
        return report.failed(play), False
    line = report.row(play, traffic)
    sys.stdout.write(f"{line}\n")
    return line, True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
