"""What looks like a secret, by its form or by its name. Nothing here repeats one."""

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise

HIDDEN = "(hidden)"
# What a text must hold somewhere, in lower case, and what then is looked for: a search for a plain word is
# far quicker than one for a pattern, and whole files are read.
_FORMS: Mapping[str, tuple[tuple[str, ...], re.Pattern[str]]] = {
    "a private key": (("private key",), re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY")),
    "an AWS access key": (("akia", "asia"), re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    "a GitHub token": (
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        re.compile(r"\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{20,}"),
    ),
    "a GitLab token": (("glpat-",), re.compile(r"\bglpat-[\w-]{20,}")),
    "a Slack token": (("xox",), re.compile(r"\bxox[abeoprs]-[\w-]{10,}")),
    "a Hugging Face token": (("hf_",), re.compile(r"\bhf_[A-Za-z0-9]{20,}")),
    "a Google API key": (("aiza",), re.compile(r"\bAIza[\w-]{30,}")),
    "an API key": (("sk-",), re.compile(r"\bsk-[\w-]{20,}")),
    "a registry token": (("npm_", "dckr_pat_"), re.compile(r"\b(?:npm|dckr_pat)_[\w-]{20,}")),
    "an Azure storage key": (("accountkey=",), re.compile(r"\bAccountKey=[A-Za-z0-9+/]{40,}")),
    "a signed token": (("eyj",), re.compile(r"\beyJ[\w-]{10,}\.[\w-]{10,}\.")),
    "a password in a URL": (("://",), re.compile(r"://[^/\s:@]*:[^/\s@${}<>]+@")),
    "a bearer token": (("bearer",), re.compile(r"\bBearer\s+[\w.~+/-]{20,}", re.IGNORECASE)),
}  # fmt: skip
_ASSIGNED = re.compile(
    r"""\b(?:\w+[_-])?(?:password|passwd|passphrase|secret|api[_-]?key|token)["']?\s*[=:]\s*"""
    r"""["']?(?![\s"'$<{(\[]|/|true\b|false\b|null\b|none\b)[^\s"',;]{6,}""",
    re.IGNORECASE,
)
_ASSIGNED_TO = ("passw", "passphrase", "secret", "apikey", "api_key", "api-key", "token")
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


@lru_cache(maxsize=256)  # the scripts and files of one node are those of the next
def form(text: str) -> str | None:
    """What secret a text holds by its own form, also one that is assigned inside of it; None for none."""
    lower = text.lower()
    for what, (needles, pattern) in _FORMS.items():
        if any(needle in lower for needle in needles) and pattern.search(text):
            return what
    assigned = any(word in lower for word in _ASSIGNED_TO) and _ASSIGNED.search(text)
    return "a secret that is written out" if assigned else None


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
