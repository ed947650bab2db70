"""Which texts a program handed over as secrets, which the state keeps encrypted: the SDK does not say."""

from collections.abc import Mapping
from typing import Any

from pulumi_policy import deserialize, policy

_original = deserialize.deserialize_properties


class EncryptedText(str):
    """A text that is a secret of its program: plain to its container, encrypted in the state."""

    __slots__ = ()


def keep_what_is_secret() -> None:
    """From here on the SDK's properties hold an EncryptedText wherever a program gave a secret text."""
    policy.deserialize_properties = _marking  # type: ignore[attr-defined]


def marked(value: Any, *, secret: bool = False) -> Any:
    """What Pulumi sent, in which secrets are unwrapped, and their texts marked."""
    if isinstance(value, Mapping):
        if value.get(deserialize.SPECIAL_SIG_KEY) == deserialize.SPECIAL_SECRET_SIG and "value" in value:
            return marked(value["value"], secret=True)
        return {key: marked(child, secret=secret) for key, child in value.items()}
    if isinstance(value, list):
        return [marked(child, secret=secret) for child in value]
    return EncryptedText(value) if secret and isinstance(value, str) else value


def _marking(props: dict[str, Any], proxy_secrets: bool = False) -> dict[str, Any]:
    return _original(props, True) if proxy_secrets else _original(marked(props))
