"""Which words of a command line reach the model server."""

import shlex

from pack.workload import Workload

_SERVER = "tensorflow_model_server"
_PROGRAMS = (_SERVER, "tf_serving_entrypoint.sh")  # the image's script hands its arguments on


def server_words(server: Workload) -> tuple[str, ...] | None:
    """Its arguments as the server gets them; None where a shell script makes them up."""
    command = server.command
    for position, word in enumerate(command):
        if word.rpartition("/")[2] in _PROGRAMS and not word.startswith("-"):
            return command[position + 1 :]
        if any(program in word for program in _PROGRAMS) and not word.startswith("-"):
            return _of_script(word, command[position + 1 :])
    return server.arguments


def _of_script(script: str, given: tuple[str, ...]) -> tuple[str, ...] | None:
    """What follows the server in a script for `sh -c`, to which `given` are $0, $1 and so on."""
    lexer = shlex.shlex(script, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        return None
    start = next((at for at, word in enumerate(words) if word.rpartition("/")[2] in _PROGRAMS), None)
    if start is None:
        return None
    found: list[str] = []
    for word in words[start + 1 :]:
        if not word.strip(";&|<>()"):
            # The next command, or where its output goes: `2>&1`.
            return tuple(found[:-1] if word[0] in "<>" and found and found[-1].isdecimal() else found)
        if word == "$@":
            found.extend(given[1:])
        elif "$" in word or "`" in word:
            return None
        else:
            found.append(word)
    return tuple(found)
