"""The report, as Markdown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from review.changes import Change, Group, groups
from review.events import Step, Violation
from review.meaning import Traffic, meanings

MOST_CHARACTERS = 60_000
"""A comment on a pull request holds 65,536."""
_MOST_CHANGES = 12
_MOST_LINES = 60
_LONGEST = 120
_NONE = "-"
_WORDS = {"create": "added", "update": "changed in place", "replace": "replaced", "delete": "removed"}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one stack; `trouble` where it does not plan, `note` for what is special about it.

    `rules` is how many policies judged it; a stack that is `gone` has nothing to judge.
    """

    title: str
    path: str
    steps: Sequence[Step] = ()
    known: Traffic = field(default_factory=lambda: Traffic({}))
    plan: Sequence[Change] = ()
    outputs: Sequence[Change] = ()
    violations: Sequence[Violation] = ()
    rules: int = 0
    trouble: str = ""
    note: str = ""
    gone: bool = False

    @property
    def ok(self) -> bool:
        """Whether it plans, and policies judged it of which no mandatory one refuses it."""
        refused = any(one.level == "mandatory" for one in self.violations)
        return self.gone or (not self.trouble and not refused and self.rules > 0)

    def count(self, operation: str) -> int:
        """How many resources an operation is done to."""
        return sum(step.operation == operation for step in self.steps)


def report(outcomes: Sequence[Outcome], *, base: str, notes: Sequence[str] = ()) -> str:
    """All of it, cut where a comment could not hold it."""
    whole = "\n".join(_lines(outcomes, base, notes)) + "\n"
    if len(whole) <= MOST_CHARACTERS:
        return whole
    cut = whole[:MOST_CHARACTERS].rpartition("\n")[0]
    closing = "\n".join(["```"] * (cut.count("```") % 2) + ["</details>"] * _open_details(cut))
    return f"{cut}\n{closing}\n\n**The report is longer than this: `make pr-check` prints all of it.**\n"


def _open_details(text: str) -> int:
    return text.count("<details>") - text.count("</details>")


def _lines(outcomes: Sequence[Outcome], base: str, notes: Sequence[str]) -> Iterator[str]:
    yield "## What this changes in each stack"
    yield ""
    yield f"Compared with {base}, without secrets, state or hosts: as if that commit were deployed."
    yield from (f"\n{note}" for note in notes)
    yield ""
    yield f"| stack | {' | '.join(_WORDS.values())} | policies |"
    yield f"|---|{'---|' * len(_WORDS)}---|"
    for outcome in outcomes:
        yield _row(outcome)
    for outcome in outcomes:
        yield from _section(outcome)


def _row(outcome: Outcome) -> str:
    counts = [_NONE if outcome.trouble else str(outcome.count(name) or _NONE) for name in _WORDS]
    levels = [one.level for one in outcome.violations]
    said = ", ".join(
        f"{levels.count(level)} {level}" for level in ("mandatory", "advisory") if level in levels
    )
    passed = f"{outcome.rules} rules: ok" if outcome.rules else _NONE if outcome.gone else "**not judged**"
    last = "**does not plan**" if outcome.trouble else said or passed
    return f"| {outcome.title} | {' | '.join(counts)} | {last} |"


def _section(outcome: Outcome) -> Iterator[str]:
    body = [*_body(outcome)]
    if body:
        yield from ("", f"### {outcome.title} (`{outcome.path}`)", "", *body)


def _body(outcome: Outcome) -> Iterator[str]:
    if outcome.note:
        yield from (outcome.note, "")
    if outcome.trouble:
        yield from ("**It does not plan:**", "", *_fenced(outcome.trouble.splitlines()))
    yield from (
        f"- **{one.level}** policy `{one.policy}`, {one.resource}: {_one_line(one.message)}"
        for one in outcome.violations
    )
    for group in groups(outcome.steps):
        yield from _group(group, outcome.known)
    yield from _details("Outputs that other teams read", outcome.outputs)
    yield from _details("The plan", outcome.plan)


def _group(group: Group, known: Traffic) -> Iterator[str]:
    names = ", ".join(step.name for step in group.steps)
    means = "; ".join(meanings(group.steps, known))
    kind = group.type.rpartition(":")[2]
    yield f"- **{_WORDS[group.operation]}** {names} ({kind}){f': {means}' if means else ''}"
    short = [one for one in group.changes if not one.is_file]
    others = ", and of the others their own"
    yield from (f"  - {_told(one)}{others if one.path in group.own else ''}" for one in short[:_MOST_CHANGES])
    if len(short) > _MOST_CHANGES:
        yield f"  - and {len(short) - _MOST_CHANGES} more"
    for one in group.changes:
        if one.is_file:
            lines = one.lines()
            more = [f"... {len(lines) - _MOST_LINES} more lines"] if len(lines) > _MOST_LINES else []
            shown = _fenced([*lines[:_MOST_LINES], *more], "diff")
            yield from (
                "",
                f"  <details><summary>{_code(one.path)}{others if one.path in group.own else ''}</summary>",
                "",
            )
            yield from (f"  {line}" for line in shown)
            yield from ("", "  </details>", "")


def _details(title: str, changes: Sequence[Change]) -> Iterator[str]:
    if not changes:
        return
    yield from ("", f"<details><summary>{title}: {len(changes)} differ</summary>", "")
    yield from (f"- {_told(one)}" for one in changes[: 4 * _MOST_CHANGES])
    if len(changes) > 4 * _MOST_CHANGES:
        yield f"- and {len(changes) - 4 * _MOST_CHANGES} more"
    yield from ("", "</details>")


def _told(change: Change) -> str:
    if change.old is None:
        return f"{_code(change.path)}: new, {_code(change.new or '')}"
    if change.new is None:
        return f"{_code(change.path)}: gone, was {_code(change.old)}"
    return f"{_code(change.path)}: {_code(change.old)} → {_code(change.new)}"


def _code(text: str) -> str:
    """In a code span, so that nothing in it is Markdown."""
    line = _one_line(text).replace("`", "'")
    return f"`{line if len(line) <= _LONGEST else line[:_LONGEST] + '…'}`" if line else "nothing"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _fenced(lines: Sequence[str], language: str = "") -> list[str]:
    return [f"```{language}", *(line.replace("```", "'''") for line in lines), "```"]
