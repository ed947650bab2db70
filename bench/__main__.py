"""`python -m bench [PART ...]` (`plan preview-10 envoy`): measures, prints, and writes bench/results.md."""

import sys
from collections.abc import Mapping, Sequence
from datetime import date

from bench import batching, envoy, plan, policies, preview, proxies, up
from bench.measure import machine
from bench.part import Part
from tests.pulumi_project import CHECKOUT
from toolchain.pulumi import ensure

RESULTS = CHECKOUT / "bench" / "results.md"


_FILES = (plan, preview, policies, up, envoy, proxies, batching)
PARTS: dict[str, Part] = {name: part for file in _FILES for name, part in file.PARTS.items()}


def named(words: Sequence[str]) -> list[str]:
    """The parts that words stand for: `preview-10` one, `preview` all of its file. Raises SystemExit."""
    wanted = []
    for word in words or PARTS:
        found = [name for name in PARTS if name == word or name.startswith(f"{word}-")]
        if not found:
            sys.exit(f"make bench: no part {word!r}; parts are {', '.join(PARTS)}")
        wanted += found
    return wanted


def main() -> None:
    """Run the parts that are named, or all, and write them over their old sections."""
    wanted = named(sys.argv[1:])
    toolchain = ensure(plugins=["docker"])
    sections = _old_sections()
    for name in wanted:
        title = PARTS[name].title
        lines = []
        print(f"## {title}", flush=True)
        for line in PARTS[name].report(toolchain):
            print(line, flush=True)
            lines.append(line)
        when = f"{date.today().isoformat()}, {machine()}"  # noqa: DTZ011 - the day where it ran
        how = f"Measured {when}, Pulumi {toolchain.version} ({toolchain.origin})."
        sections[title] = "\n".join([how, "", *lines])
        _write(sections)  # after each part, so that one that fails takes none along


def _write(sections: Mapping[str, str]) -> None:
    text = (
        "# Measurements\n\nWritten by `make bench`. Ratios are medians of interleaved pairs within one run.\n"
    )
    for part in PARTS.values():
        if part.title in sections:
            text += f"\n## {part.title}\n\n{sections[part.title]}\n"
    RESULTS.write_text(text, encoding="utf-8")


def _old_sections() -> dict[str, str]:
    if not RESULTS.exists():
        return {}
    parts = RESULTS.read_text(encoding="utf-8").split("\n## ")[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in parts}


if __name__ == "__main__":
    main()
