"""Generated documents are what the code says today."""

import json
from pathlib import Path

import pytest
import yaml

from docs.generate import generated, stack_schema
from tests import golden

REGENERATE = "`python -m docs.generate` writes it anew"


@pytest.mark.parametrize("file", generated(), ids=lambda file: file.name)
def test_a_generated_file_is_what_would_be_written_now(file: Path) -> None:
    assert file.read_text(encoding="utf-8") == generated()[file], REGENERATE


@pytest.mark.parametrize("file", golden.stack_files().values(), ids=lambda file: file.name)
def test_the_schema_knows_every_key_of_a_committed_stack_file(file: Path) -> None:
    config = yaml.safe_load(file.read_text(encoding="utf-8"))["config"]
    targets = json.loads(stack_schema())["properties"]["config"]
    schema = targets["then" if config.get("tf-serving:target") == "kubernetes" else "else"]
    assert set(schema["required"]) <= set(config)
    assert {key for key in config if key.startswith("tf-serving:")} <= set(schema["properties"])
