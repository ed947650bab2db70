"""Command line of `python3 -m ops`: runs one command, turns errors and interrupts into one message."""

import argparse
import shlex
import sys
from collections.abc import Sequence

from ops import down, lock, paths, setup, tiers, up
from ops.errors import UserError
from ops.processes import EXIT_INTERRUPTED, handle_signals
from ops.requirements import write_locks
from toolchain.errors import ToolchainError

_ALONE = frozenset({"up", "down", "clean"})


def main(arguments: Sequence[str]) -> int:
    """Run a command; its exit code: 1 for a problem, printed as its message, 130 for an interrupt."""
    options = _parser().parse_args(arguments)
    handle_signals()
    try:
        if options.command in _ALONE:
            with lock.alone(paths.LOCAL / "lock", f"`make {options.command}`"):
                return _run(options)
        return _run(options)
    except (UserError, ToolchainError) as error:
        sys.stdout.flush()
        print(f"make {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        sys.stdout.flush()
        after = _AFTER.get(options.command, "")
        print(f"\nmake {options.command}: interrupted.{after}", file=sys.stderr)
        return EXIT_INTERRUPTED


_AFTER = {
    "up": " What was made so far is in the stack's state: `make up` goes on, `make down` removes it.",
    "down": " `make down` again goes on from here.",
}


def _run(options: argparse.Namespace) -> int:
    extra: list[str] = options.arguments
    stack: str = options.stack
    match options.command:
        case "up":
            return up.up(stack, extra)
        case "preview":
            return up.preview(stack, extra)
        case "pulumi":
            return up.pulumi(stack, extra)
        case "down":
            return down.down(stack, extra)
        case "preflight":
            return setup.preflight_alone(stack)
        case "pin":
            return setup.pin(stack)
        case "test":
            return tiers.test(options.tiers, extra)
        case "lint":
            return tiers.lint(fix=options.fix)
        case "lock":
            return write_locks()
        case "clean":
            return down.clean()
        case command:
            raise AssertionError(f"no function for the command {command}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m ops", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in ("up", "preview", "down", "preflight", "pin", "pulumi", "test", "lint", "lock", "clean"):
        command = commands.add_parser(name)
        command.set_defaults(arguments=[], stack="", tiers=[], fix=False)
        if name in ("up", "preview", "down", "preflight", "pin", "pulumi"):
            command.add_argument("--stack", default=setup.LOCAL_STACK)
        if name == "test":
            command.add_argument("tiers", nargs="*", default=[])
        if name == "lint":
            command.add_argument("--fix", action="store_true")
        if name in ("up", "preview", "down", "pulumi", "test"):
            # A single argument that a shell has not split, as make hands it over.
            command.add_argument("--arguments", type=shlex.split, default=[], metavar="'ARGUMENTS'")
    return parser
