"""bench/results.md: its sections, and what documents quote of them."""

import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
RESULTS = CHECKOUT / "bench" / "results.md"
QUOTING = (CHECKOUT / "docs" / "traffic.md", CHECKOUT / "docs" / "batching.md")
"""Documents that quote: what stands between `<!-- measured: <title> -->` and `<!-- end -->` is a section of
results.md, and with `said` in place of `measured` its sentences alone."""

_INTRODUCTION = (
    "# Measurements\n\nWritten by `make bench`. Ratios are medians of interleaved pairs within one run.\n"
)
_QUOTE = re.compile(r"(<!-- (measured|said): ([^\n]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_WIDTH = 110


def read() -> dict[str, str]:
    """The text of each section by its title."""
    if not RESULTS.exists():
        return {}
    parts = RESULTS.read_text(encoding="utf-8").split("\n## ")[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in parts}


def write(sections: Mapping[str, str], titles: Iterable[str]) -> None:
    """Write the sections in the order of `titles`, and each document's quotations of them anew."""
    text = _INTRODUCTION
    for title in titles:
        if title in sections:
            text += f"\n## {title}\n\n{sections[title]}\n"
    RESULTS.write_text(text, encoding="utf-8")
    for file, quoted in quoting().items():
        file.write_text(quoted, encoding="utf-8")


def quoting() -> dict[Path, str]:
    """Each document that quotes, with what results.md says now."""
    sections = read()
    return {file: quoted(file.read_text(encoding="utf-8"), sections) for file in QUOTING}


def quoted(text: str, sections: Mapping[str, str]) -> str:
    """A document's text with its quotations from these sections."""

    def fill(found: re.Match[str]) -> str:
        begin, how, title, end = found.groups()
        section = sections.get(title, "Not measured yet.")
        kept = _sentences(section) if how == "said" else section
        return f"{begin}\n{kept}\n\n{end}"

    return _QUOTE.sub(fill, text)


def _sentences(section: str) -> str:
    """What is neither a table nor the heading of one, nor when and where it was measured."""
    said = [
        textwrap.fill(paragraph, _WIDTH)
        for paragraph in section.split("\n\n")
        if not paragraph.startswith(("|", "Measured ")) and not paragraph.endswith(":")
    ]
    return "\n\n".join(said)
