"""Reads each resource of a request once: the SDK reads it anew for every policy, wanted or not."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from pulumi.runtime import proto
from pulumi_policy import policy as sdk

from pack.stack import matters

_Read = Callable[[Any], Mapping[str, Any]]


class Later(Mapping[str, Any]):
    """Properties that are read when a rule first looks at them.

    An unknown is left as the SDK's mark for it, which `pack.plain` knows; the SDK's own proxies would raise.
    """

    def __init__(self, message: Any, read: _Read) -> None:
        self._message = message
        self._read = read

    @cached_property
    def _values(self) -> Mapping[str, Any]:
        return self._read(self._message)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class _Request(threading.local):
    """What was read in the request that this thread answers: by the message's identity, while it lives."""

    read: dict[int, Later] | None = None


_request = _Request()


@contextmanager
def _one_request() -> Iterator[None]:
    _request.read = {}
    try:
        yield
    finally:
        _request.read = None


class _ReadsOnce(sdk._PolicyAnalyzerServicer):  # noqa: SLF001 - the SDK has no other way in
    """The SDK's server, for which a resource that no rule looks at costs next to nothing."""

    def Analyze(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name in the protocol
        if not matters(request.type):
            return proto.AnalyzeResponse()
        with _one_request():
            return super().Analyze(request, context)  # type: ignore[no-untyped-call]

    def AnalyzeStack(self, request: Any, context: Any) -> Any:  # noqa: N802
        with _one_request():
            return super().AnalyzeStack(request, context)  # type: ignore[no-untyped-call]

    def Remediate(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        """No rule changes a resource: there is nothing to read it for."""
        return proto.RemediateResponse()


def read_once() -> None:
    """From here on a PolicyPack() serves this way. After `keep_what_is_secret`, whose reading it keeps."""
    had = vars(sdk)
    to_dict = had["json_format"].MessageToDict
    deserialize, proxy = had["deserialize_properties"], had["unknown_checking_proxy"]

    def read(message: Any) -> Mapping[str, Any]:
        found: Mapping[str, Any] = deserialize(to_dict(message))
        return found

    def later(message: Any) -> Any:
        known = _request.read
        if known is None:
            return to_dict(message)
        if id(message) not in known:  # Later holds the message, so that no other gets its identity
            known[id(message)] = Later(message, read)
        return known[id(message)]

    def unless_later(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda props, *rest: props if isinstance(props, Later) else function(props, *rest)

    changed: dict[str, Any] = {
        "_PolicyAnalyzerServicer": _ReadsOnce,
        "json_format": SimpleNamespace(MessageToDict=later),
        "deserialize_properties": unless_later(deserialize),
        "unknown_checking_proxy": unless_later(proxy),
    }
    for name, value in changed.items():
        setattr(sdk, name, value)
