"""Which Envoy runs in a front end's container: its image and arguments are on a volume, and may be others."""

from collections.abc import Iterator

from ops.hosts import Host
from ops.inspection import Container, Difference, only_file

# What the publisher is given of it, and what the front end says (components/data/envoy_run.sh).
_WANTED, _SAID = "/publish/then/envoy.run", "/volume/.said/envoy"


def of_publisher(container: Container, host: Host) -> Iterator[Difference]:
    """How the Envoy that runs differs from what this publisher was to bring; nothing of other publishers."""
    if _WANTED not in container.files:
        return
    wanted = container.files[_WANTED].splitlines()
    copied = host.docker("cp", f"{container.name}:{_SAID}", "-")
    text = (only_file(copied.stdout) or b"").decode(errors="replace") if copied.code == 0 else ""
    # `serves` or `refuses`, the image, the name of the binary, and the rest up to an empty line.
    said, _, _ = text.partition("\n\n")
    lines = said.splitlines()
    found = [*lines[1:2], *lines[3:]]
    if lines[:1] == ["serves"] and found == wanted:
        return
    told = "nothing is said" if not lines else f"{lines[0]} {_words(found)}"
    yield Difference(container, "Envoy", f"serves {_words(wanted)}", told)


def _words(lines: list[str]) -> str:
    image, _, *arguments = lines if len(lines) > 2 else ["?", "", *lines]
    return f"{image} ({' '.join(arguments)})"
