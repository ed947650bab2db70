"""`python3 -m images [docker host]`: make the local images in an engine."""

import sys

from images.build import ensure_images
from toolchain.errors import ToolchainError


def main() -> int:
    """Run it; the exit code is 1 with a message on standard error when it can't be done."""
    if len(sys.argv) > 2 or sys.argv[1:] in (["-h"], ["--help"]):
        sys.stderr.write(
            "usage: python3 -m images [unix:///path/to/docker.sock | ssh://user@host | tcp://host:port]\n"
        )
        return 2
    try:
        ensure_images(sys.argv[1] if len(sys.argv) == 2 else None)
    except ToolchainError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
