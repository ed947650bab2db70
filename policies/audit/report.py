"""What an audit found, as a table for people or as JSON."""

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from pack.judge import judge_all
from pack.resource import Resource

from audit.levels import Judged

_HEAD = ("rule", "level", "resource", "value", "fix")
_WRAPPED = {"rule": 28, "resource": 36, "value": 60, "fix": 50}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A violation: the rule and its level, the resource, what stands where, and what to do."""

    rule: str
    level: str
    resource: str
    value: str
    fix: str


def rows(resources: Sequence[Resource], judged: Iterable[Judged]) -> list[Row]:
    """Every violation, the mandatory ones first."""
    found = [
        Row(
            rule=one.rule.name,
            level=one.level,
            # An object of a file is told by where it is, a deployed resource by its name.
            resource=finding.resource.name if "::" in finding.resource.urn else finding.resource.urn,
            value=finding.what,
            fix=finding.fix,
        )
        for one in judged
        for finding in judge_all(one.rule, resources, one.params)
    ]
    return sorted(found, key=lambda row: (row.level != "mandatory", row.rule, row.resource))


def as_json(found: Iterable[Row]) -> str:
    """A list of objects."""
    return json.dumps([asdict(row) for row in found], indent=2)


def as_table(found: Sequence[Row]) -> Iterator[str]:
    """Columns, in which long texts go on below."""
    cells = [_HEAD, *((row.rule, row.level, row.resource, row.value, row.fix) for row in found)]
    broken = [[_lines(name, cell) for name, cell in zip(_HEAD, row, strict=True)] for row in cells]
    widths = [max(len(line) for row in broken for line in row[column]) for column in range(len(_HEAD))]
    for row in broken:
        for position in range(max(map(len, row))):
            texts = (lines[position] if position < len(lines) else "" for lines in row)
            yield "  ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)).rstrip()


def _lines(column: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WRAPPED.get(column, 80)) or [""]
