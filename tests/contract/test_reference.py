"""Generated documents are what the code says today."""

import json
from pathlib import Path

import pytest
import yaml

from docs.generate import PROJECT, reference, stack_schema
from tests import golden

REGENERATE = "`python -m docs.generate` writes it anew"


def test_the_reference_is_what_would_be_generated() -> None:
    assert (PROJECT / "docs" / "reference.md").read_text(encoding="utf-8") == reference(), REGENERATE


def test_the_schema_is_what_would_be_generated() -> None:
    committed = (PROJECT / "schemas" / "stack.schema.json").read_text(encoding="utf-8")
    assert committed == stack_schema(), REGENERATE


@pytest.mark.parametrize("file", golden.stack_files().values(), ids=lambda file: file.name)
def test_the_schema_knows_every_key_of_a_committed_stack_file(file: Path) -> None:
    config = yaml.safe_load(file.read_text(encoding="utf-8"))["config"]
    schema = json.loads(stack_schema())["properties"]["config"]
    assert set(schema["required"]) <= set(config)
    assert {key for key in config if key.startswith("tf-serving:")} <= set(schema["properties"])
