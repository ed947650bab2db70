"""What looks like a secret, by its form or by its name. Nothing here repeats one."""

import re
from collections.abc import Mapping
from itertools import pairwise

HIDDEN = "(hidden)"
_FORMS: Mapping[str, re.Pattern[str]] = {
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    "an AWS access key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a GitHub token": re.compile(r"\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{20,}"),
    "a GitLab token": re.compile(r"\bglpat-[\w-]{20,}"),
    "a Slack token": re.compile(r"\bxox[abeoprs]-[\w-]{10,}"),
    "a Hugging Face token": re.compile(r"\bhf_[A-Za-z0-9]{20,}"),
    "a Google API key": re.compile(r"\bAIza[\w-]{30,}"),
    "an API key": re.compile(r"\bsk-[\w-]{20,}"),
    "a registry token": re.compile(r"\b(?:npm|dckr_pat)_[\w-]{20,}"),
    "an Azure storage key": re.compile(r"\bAccountKey=[A-Za-z0-9+/]{40,}"),
    "a signed token": re.compile(r"\beyJ[\w-]{10,}\.[\w-]{10,}\."),
    "a password in a URL": re.compile(r"://[^/\s:@]*:[^/\s@${}<>]+@"),
    "a bearer token": re.compile(r"\bBearer\s+[\w.~+/-]{20,}", re.IGNORECASE),
}  # fmt: skip
_ASSIGNED = re.compile(
    r"""\b(?:\w+[_-])?(?:password|passwd|passphrase|secret|api[_-]?key|token)["']?\s*[=:]\s*"""
    r"""["']?(?![\s"'$<{(\[]|/|true\b|false\b|null\b|none\b)[^\s"',;]{6,}""",
    re.IGNORECASE,
)
_WORDS = {
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "apikey",
    "credential",
    "credentials",
    "privatekey",
}
_PAIRS = {("api", "key"), ("private", "key"), ("access", "key"), ("secret", "key"), ("account", "key")}
_POINTS_TO = {"file", "path", "dir", "name", "ref", "arn", "url", "uri", "version"}
_PLAIN_VALUE = re.compile(r"$|/|\.{1,2}/|(?:true|false|none|null|yes|no|on|off)$|\$[({]", re.IGNORECASE)


def form(text: str) -> str | None:
    """What secret a text holds by its own form, also one that is assigned inside of it; None for none."""
    for what, pattern in _FORMS.items():
        if pattern.search(text):
            return what
    return "a secret that is written out" if _ASSIGNED.search(text) else None


def is_named_secret(name: str, value: str) -> bool:
    """Whether a name says that its value is a secret; not where that is a path, a switch or a reference."""
    parts = [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]
    if not parts or parts[-1] in _POINTS_TO or _PLAIN_VALUE.match(value.strip()):
        return False
    if _WORDS.intersection(parts) or _PAIRS.intersection(pairwise(parts)):
        return True
    return "token" in parts and not value.strip().isdecimal()  # a number is a limit of tokens


def shown(text: str) -> str:
    """A text for a message."""
    return HIDDEN if form(text) else text
