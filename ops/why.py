"""Why a Pulumi run failed, in a few lines at its end: what Pulumi says of it has scrolled away by then."""

from collections.abc import Iterator, Sequence

from review.events import Event, errors, violations

_MOST = 12  # of each kind
_MOST_LINES = 8  # of one error
_SAYS_NOTHING = ("preview failed", "update failed")


def summary(events: Sequence[Event]) -> str:
    """Every mandatory violation and every error of a failed run; empty where it told neither."""
    lines = [*_refused(events), *_failed(events)]
    return "\n".join(["Why it failed:", *lines]) if lines else ""


def _refused(events: Sequence[Event]) -> Iterator[str]:
    found = [one for one in violations(events) if one.level == "mandatory"]
    for one in found[:_MOST]:
        # The SDK puts what the rule protects in front of what is wrong.
        first, *more = one.message.splitlines()[1:] or [one.message]
        yield f"  - policy {one.policy}, {one.resource}: {first.strip()}"
        yield from (f"    {line.strip()}" for line in more if line.strip())
    if len(found) > _MOST:
        yield f"  - and {len(found) - _MOST} more violations of policies"


def _failed(events: Sequence[Event]) -> Iterator[str]:
    found = [text for text in dict.fromkeys(errors(events)) if text and text not in _SAYS_NOTHING]
    for text in found[:_MOST]:
        first, *more = [line.rstrip() for line in text.splitlines() if line.strip()]
        yield f"  - {first}"
        yield from (f"    {line.strip()}" for line in more[:_MOST_LINES])
        if len(more) > _MOST_LINES:
            yield f"    and {len(more) - _MOST_LINES} more lines above"
    if len(found) > _MOST:
        yield f"  - and {len(found) - _MOST} more errors above"
