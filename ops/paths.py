"""Where things lie in this checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# All that set-up makes and that belongs to the local stack; ignored by git.
LOCAL = ROOT / ".local"
ENGINE = LOCAL / "docker"
CLUSTER = LOCAL / "cluster"
PYTHON = ROOT / ".venv" / "bin" / "python"


def stack_file(stack: str) -> Path:
    """The committed configuration of a stack."""
    return ROOT / f"Pulumi.{stack}.yaml"
