"""`python -m tests.mutation [rule ...]`: removes each condition of each rule in turn, and runs its tests.

Exit code: 0 where a test notices every removal, 1 where one survives. Rules are named by file or by name.
"""

import argparse
import ast
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "policies")]

from ops.samples import table  # noqa: E402
from tests.mutation.equivalent import EQUIVALENT  # noqa: E402
from tests.mutation.mutants import Mutant, mutants  # noqa: E402
from tests.mutation.run import own_tests, rule_files, verdicts  # noqa: E402


def main(arguments: Sequence[str]) -> int:
    """Every rule that is named, or all."""
    parser = argparse.ArgumentParser(prog="make mutate-policies ARGS=…")
    parser.add_argument("rules", nargs="*", metavar="RULE")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    options = parser.parse_args(arguments)
    files = rule_files()
    wanted = [name.replace("-", "_") for name in options.rules] or list(files)
    if unknown := [name for name in wanted if name not in files]:
        parser.error(f"no rule {unknown[0]}; there are {', '.join(files)}")
    rows, failed = [], False
    for name in wanted:
        made = mutants(files[name].read_text(encoding="utf-8"))
        if options.list:
            print("\n".join(f"{name}: {mutant}" for mutant in made))
            continue
        started = time.monotonic()
        problems = 0
        for problem in judged(name, files[name], made, options.processes):
            problems += 1
            print(f"{name}: {problem}", flush=True)
        failed = failed or problems > 0
        seconds = f"{time.monotonic() - started:.0f} s"
        same = len(EQUIVALENT.get(name, {}))
        rows.append((name, str(len(made)), str(same), str(problems), seconds))
    if rows:
        print("\n".join(table(("rule", "mutants", "equivalent", "survivors", "time"), rows)))
    return 1 if failed else 0


def judged(name: str, file: Path, made: Sequence[Mutant], processes: int) -> Iterator[str]:
    """The problems of a rule's tests, as they are known: survivors, and a false claim of equivalence."""
    if not own_tests(name).exists():
        yield f"has no tests ({own_tests(name).name})"
        return
    [(_, unchanged)] = verdicts(name, [ast.parse(file.read_text(encoding="utf-8"))], 1)
    if unchanged != "survived":
        yield f"its tests fail though nothing is changed ({unchanged})"
        return
    same, noticed = EQUIVALENT.get(name, {}), set()
    for number, verdict in verdicts(name, [mutant.tree for mutant in made], processes):
        key = (made[number].before, made[number].after)
        if verdict == "survived" and key not in same:
            yield f"{made[number]}: no test notices"
        if verdict != "survived":
            noticed.add(key)
    known = {(mutant.before, mutant.after) for mutant in made}
    for before, after in same:
        if (before, after) in noticed or (before, after) not in known:
            yield f"`{before}` -> `{after}` is not equivalent any more"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
