"""What the three routes to Pulumi all give."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from toolchain.versions import REPOSITORY

Origin = Literal["path", "official", "rebuilt"]

# `pulumi version` of what route 3 built: v3.274.1+rebuilt. Comparing versions ignores what follows the plus.
REBUILT_MARK = "+rebuilt"


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """A Pulumi CLI that works. `env` is what to add to the environment of whoever runs it."""

    pulumi: Path
    version: str
    origin: Origin
    env: dict[str, str] = field(default_factory=dict)


def own_home() -> Path:
    """The PULUMI_HOME of a CLI that we brought: nothing in it mixes with a user's `~/.pulumi`."""
    return REPOSITORY / ".local" / "pulumi-home"


def own_environment(executables: Path) -> dict[str, str]:
    """What a CLI that we brought needs: its folder first on PATH, and a home of its own."""
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    first = [str(executables), *(folder for folder in path if folder != str(executables))]
    return {
        "PATH": os.pathsep.join(first),
        "PULUMI_HOME": str(own_home()),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }
