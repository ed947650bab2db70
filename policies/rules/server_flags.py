"""A server that prints a flag and carries on without it looks well, and is not what was asked for."""

import difflib
import re
from collections.abc import Iterator, Mapping

from pack import images
from pack.facts import Flag, facts
from pack.rule import EVERYWHERE, Finding, Params, Rule, about, unread
from pack.secrets import is_named_secret, shown
from pack.server_command import server_words
from pack.stack import Stack
from pack.workload import Workload

NAME = "server-flags"
_PLAIN = "give every argument in plain text: what the server will do must be known"
_PATTERNS: Mapping[str, re.Pattern[str]] = {
    "int": re.compile(r"[+-]?\d+"),
    "float": re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"),
    "bool": re.compile(r"true|false|1|0", re.IGNORECASE),
}
_KINDS: Mapping[str, str] = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
}
_OF_THE_BATCHING_FILE = (
    "max_batch_size",
    "batch_timeout_micros",
    "num_batch_threads",
    "max_enqueued_batches",
    "allowed_batch_sizes",
    "pad_variable_length_inputs",
    "thread_pool_name",
    "enable_large_batch_splitting",
    "max_execution_batch_size",
)


def check(stack: Stack, _params: Params) -> Iterator[Finding]:
    """Each argument of each server."""
    for server in stack.servers:
        yield from unread(server, "command", "Arguments", _PLAIN)
        words = server_words(server)
        if words is None:
            what = "command: a shell script makes up the server's arguments, so that nobody can tell them"
            yield about(server, what, "start tensorflow_model_server itself, with its arguments as a list")
        else:
            yield from _arguments(server, words)


def _arguments(server: Workload, words: tuple[str, ...]) -> Iterator[Finding]:
    version = images.server_version(server.image or "")
    known = facts().release(version or "")
    flags = facts().flags_of(version or "") if known else facts().flags
    given: set[str] = set()
    lacking = False  # whether the word before was a flag without its value
    for position, word in enumerate(words):
        name, equals, value = word.lstrip("-").partition("=")
        following = words[position + 1] if position + 1 < len(words) else "-"
        if not word.startswith("-"):
            if not lacking:
                what = f"argument {shown(word)}: is no flag: the server ignores it and starts without"
                yield about(server, what, "write each argument as --name=value")
        elif name not in flags:
            yield _unknown(server, name, version, flags)
        elif not word.startswith("--") or word.startswith("---"):
            what = f"{shown(word)}: a flag begins with two dashes: the server ignores it otherwise"
            yield about(server, what, f"write {shown(f'--{name}={value or _example(flags[name])}')}")
        elif not equals:
            yield _without_a_value(server, name, flags[name], following)
        else:
            yield from _value(server, name, value, flags[name])
        if word.startswith("-") and name in given:
            what = f"--{name}: {_safe(name, value)}: is given twice, and the last one wins without a word"
            yield about(server, what, f"give --{name} once")
        given.add(name if word.startswith("-") else "")
        lacking = word.startswith("-") and not equals


def _unknown(server: Workload, name: str, version: str | None, flags: Mapping[str, Flag]) -> Finding:
    later = facts().flags.get(name)
    close = difflib.get_close_matches(name, flags, 1)
    if later:
        what = f"--{name}: TensorFlow Serving {version} lacks it; since {later.since}"
        fix = f"remove it, or use the image of {later.since} or newer"
    elif name in _OF_THE_BATCHING_FILE:
        what = f"--{name}: is no flag of the server"
        fix = "write it into the file that --batching_parameters_file names, and set --enable_batching=true"
    else:
        what = f"--{name}: no version of the server has this flag"
        fix = f"did you mean --{close[0]}?" if close else "remove it, or correct its name"
    return about(server, f"{what}: it would be ignored, and the server would start without", fix)


def _without_a_value(server: Workload, name: str, flag: Flag, following: str) -> Finding:
    if following.startswith("-"):
        example = "true" if flag.type == "bool" else _example(flag)
    else:
        example = _safe(name, following)
    what = f"--{name}: has no value: after a space the server does not look for one, nor do rules"
    return about(server, what, f"write --{name}={example}")


def _value(server: Workload, name: str, value: str, flag: Flag) -> Iterator[Finding]:
    pattern = _PATTERNS.get(flag.type)
    if pattern and not pattern.fullmatch(value):
        shown_value = _safe(name, value) or "empty"
        what = f"--{name}: {shown_value}: is not {_KINDS[flag.type]}: the server would not start"
        yield about(server, what, f"write --{name}={_example(flag)}")


def _example(flag: Flag) -> str:
    return f"<{_KINDS[flag.type]}>"


def _safe(name: str, value: str) -> str:
    return "(hidden)" if is_named_secret(name, value) else shown(value)


RULES = (
    Rule(
        name=NAME,
        scope="resource",
        protects="Every argument of a server is a flag that its version has, with a value that it reads",
        severity="high",
        steps=(
            "Write each argument as --name=value with a flag of this version (tensorflow_model_server --help "
            "lists them); settings of batching belong into the file that --batching_parameters_file names."
        ),
        why=(
            "https://github.com/tensorflow/serving/issues/1413",
            "https://github.com/tensorflow/serving/issues/1440",
            "https://github.com/tensorflow/serving/issues/2111",
        ),
        exempt="None: a server that ignores an argument serves something else than was asked for.",
        levels=EVERYWHERE,
        check=check,
    ),
)
