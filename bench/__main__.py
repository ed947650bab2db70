"""`python -m bench [PART ...]` (`plan preview-10 envoy`): measures, prints, and writes bench/results.md."""

import sys
from collections.abc import Sequence
from datetime import date

from bench import (
    batching,
    envoy,
    plan,
    policies,
    preview,
    proxies,
    proxy_features,
    results,
    tensors,
    up,
)
from bench.measure import machine
from bench.part import Part
from toolchain.pulumi import ensure

_FILES = (plan, preview, policies, up, envoy, proxies, proxy_features, tensors, batching)
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
    for name in wanted:
        title = PARTS[name].title
        lines = []
        print(f"## {title}", flush=True)
        try:
            for line in PARTS[name].report(toolchain):
                print(line, flush=True)
                lines.append(line)
        except BaseException:
            left = " ".join(wanted[wanted.index(name) :])
            print(f'To go on where this stopped: make bench ARGS="{left}"', file=sys.stderr)
            raise
        when = f"{date.today().isoformat()}, {machine()}"  # noqa: DTZ011 - the day where it ran
        how = f"Measured {when}, Pulumi {toolchain.version} ({toolchain.origin})."
        # After each part, so that one that fails takes none along.
        sections = {**results.read(), title: "\n".join([how, "", *lines]).strip()}
        results.write(sections, [part.title for part in PARTS.values()])


if __name__ == "__main__":
    main()
