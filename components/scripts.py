"""The scripts in `data/`, which are put beside what they work on."""

from functools import cache
from pathlib import Path

_DATA = Path(__file__).parent / "data"


@cache
def script(name: str) -> str:
    """The text of one."""
    return (_DATA / name).read_text(encoding="utf-8")
