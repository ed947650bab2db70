"""Command line of `python3 -m ops`: runs one command, turns errors and interrupts into one message."""

import argparse
import errno
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from ops import audit, cluster_commands, down, drift, heal, lock, paths, policy, release, setup, tiers, up
from ops.errors import UserError
from ops.processes import EXIT_INTERRUPTED, handle_signals
from ops.requirements import write_locks
from ops.stack import PulumiInterrupted
from toolchain.errors import ToolchainError

_Run = Callable[[argparse.Namespace], int]


@dataclass(frozen=True, kw_only=True)
class _Command:
    """What a command runs and takes; `interrupted` is said where Pulumi was at work at an interrupt."""

    run: _Run
    stack: bool = False
    arguments: bool = False
    alone: bool = False
    looks: str = ""
    """An argument with which it changes nothing, and so may run beside another one."""
    interrupted: str = ""


def _on_stack(
    run: Callable[[str, Sequence[str]], int], *, alone: bool = False, looks: str = "", after: str = ""
) -> _Command:
    """A command on a stack that hands arguments on to Pulumi."""
    return _Command(
        run=lambda options: run(options.stack, options.arguments),
        stack=True,
        arguments=True,
        alone=alone,
        looks=looks,
        interrupted=after,
    )


_COMMANDS = {
    "up": _on_stack(
        lambda stack, extra: up.up(stack, extra),
        alone=True,
        after="What was made so far is in the stack's state: `make up` goes on, `make down` removes it.",
    ),
    "preview": _on_stack(lambda stack, extra: up.preview(stack, extra)),
    "down": _on_stack(
        lambda stack, extra: down.down(stack, extra), alone=True, after="`make down` again goes on from here."
    ),
    "release": _on_stack(
        lambda stack, extra: release.release(stack, extra),
        alone=True,
        looks="--status",
        after="The stack file says how far it is: `make release` goes on, with --abort it moves back.",
    ),
    "heal": _on_stack(lambda stack, extra: heal.heal(stack, extra), alone=True),
    "drift": _on_stack(lambda stack, extra: drift.drift(stack, extra), alone=True),
    "pulumi": _on_stack(lambda stack, extra: up.pulumi(stack, extra)),
    "preflight": _Command(run=lambda options: setup.preflight_alone(options.stack), stack=True),
    "pin": _Command(run=lambda options: setup.pin(options.stack), stack=True),
    "api-keys": _Command(run=lambda _options: setup.api_keys()),
    "test": _Command(run=lambda options: tiers.test(options.tiers, options.arguments), arguments=True),
    "cluster": _Command(run=lambda _options: cluster_commands.start(), alone=True),
    "cluster-down": _Command(run=lambda _options: cluster_commands.stop(), alone=True),
    "pr-check": _Command(run=lambda options: tiers.pull_request(options.arguments), arguments=True),
    "lint": _Command(run=lambda options: tiers.lint(fix=options.fix)),
    "lock": _Command(run=lambda _options: write_locks()),
    "policy-audit": _Command(
        run=lambda options: audit.audit(options.stack, options.manifests, options.arguments),
        stack=True,
        arguments=True,
    ),
    "policy-env": _Command(run=lambda _options: policy.make_environment()),
    "policy-pack": _Command(run=lambda _options: policy.make_copy()),
    "clean": _Command(run=lambda _options: down.clean(), alone=True),
}


_NOT_WRITABLE = (
    *(errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT),
    *(errno.ENOTDIR, errno.EEXIST),  # a file where a folder is due
)
_WRITES = (
    "Tools, locks and the local stack's state are kept in this checkout and in the cache "
    "(TF_SERVING_CACHE): both must be folders that can be written."
)


def main(arguments: Sequence[str]) -> int:
    """Run a command; its exit code: 1 for a problem, printed as its message, 130 for an interrupt."""
    options = _parser().parse_args(arguments)
    name: str = options.command
    command = _COMMANDS[name]
    handle_signals()
    try:
        alone = command.alone and not (command.looks and command.looks in options.arguments)
        with lock.alone(paths.LOCAL / "lock", f"`make {name}`") if alone else nullcontext():
            return command.run(options)
    except (UserError, ToolchainError) as error:
        sys.stdout.flush()
        print(f"make {name}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in _NOT_WRITABLE:
            raise
        sys.stdout.flush()
        print(f"make {name}: {error.filename}: {error.strerror}. {_WRITES}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        sys.stdout.flush()
        after = f" {command.interrupted}".rstrip() if isinstance(interrupt, PulumiInterrupted) else ""
        print(f"\nmake {name}: interrupted.{after}", file=sys.stderr)
        return EXIT_INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m ops", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in _COMMANDS.items():
        options = commands.add_parser(name)
        if command.stack:
            options.add_argument("--stack", default=setup.LOCAL_STACK)
        if command.arguments:
            # A single argument that a shell has not split, as make hands it over.
            options.add_argument("--arguments", type=_words, default=[], metavar="'ARGUMENTS'")
        if name == "policy-audit":
            options.add_argument("--manifests", default="", metavar="FOLDER")
        if name == "test":
            options.add_argument("tiers", nargs="*", default=[])
        if name == "lint":
            options.add_argument("--fix", action="store_true")
    return parser


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"ARGS={text} cannot be split into words: {error}") from None
