"""The first page's stack file is refused as it says there, and loads once it is mended."""

import re
from pathlib import Path

import pytest

from components.errors import SettingsError
from components.stack_file import load_stack_file

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_mistake_of_the_readme_is_refused_with_the_message_that_stands_below_it(tmp_path: Path) -> None:
    shown = re.search(r"```yaml\n(?P<file>.*?)```\n\n```\n(?P<said>.*?)\n```", README.read_text(), re.DOTALL)
    assert shown is not None
    stack = tmp_path / "Pulumi.prod.yaml"
    stack.write_text(shown["file"])
    with pytest.raises(SettingsError) as refused:
        load_stack_file(stack)
    assert str(refused.value) == shown["said"]
    stack.write_text(shown["file"].replace("[1, 8, 32]", "[1, 8, 64]"))
    assert load_stack_file(stack).pools[0].name == "main"
