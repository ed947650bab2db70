"""Text that somebody left in: placeholders and secrets, and what only resembles them."""

import pytest

from tests import stacks
from tests.stacks import changed, one_node, refusal

PATHS = ["pools[0].models[0].path", "pools[0].server.saved_model_tags", "nodes[0].docker.ssh_options[1]"]
PLACEHOLDERS = [
    "<your path>",
    "CHANGE_ME",
    "changeme",
    "TODO",
    "FIXME",
    "your-model",
    "xxx",
    "${HOME}",
    "{{ m }}",
]
# In pieces, so that no scanner takes this file for a leak.
SECRETS = [
    "-----BEGIN RSA " + "PRIVATE KEY-----",
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "gh" + "p_" + "a1" * 18,
    "glpat-" + "a1b2" * 6,
    "xoxb-" + "1234567890",
    "https://me:hunter2@example.com",
    "password=hunter2",
    "--token=hunter2",
]
HARMLESS = [
    "/srv/models/todos",
    "/srv/models/changes",
    "/srv/models/xx",
    "/srv/models/exchange_metrics",
    "/srv/yours",
    "/srv/models/secret-santa",
    "/srv/models/tokenizer",
    "/srv/models/$HOME",
]


def with_text(path: str, text: str) -> stacks.Config:
    config = changed(one_node(), "nodes[0].docker.ssh_options", ["-o", "BatchMode=yes"])
    config = changed(config, "pools[0].server", {"saved_model_tags": "serve"})
    return changed(config, path, text)


@pytest.mark.parametrize("text", PLACEHOLDERS)
@pytest.mark.parametrize("path", PATHS)
def test_a_placeholder_is_told_where_it_stands(path: str, text: str) -> None:
    text = f"/srv/{text}" if path.endswith(".path") else text
    assert refusal(with_text(path, text)) == [f"{path}: '{text}': looks like a placeholder that was left in"]


@pytest.mark.parametrize("text", SECRETS)
@pytest.mark.parametrize("path", PATHS[1:])
def test_a_secret_is_told_where_it_stands_and_not_shown(path: str, text: str) -> None:
    assert refusal(with_text(path, text)) == [
        f"{path}: looks like a secret, and stack files are committed; keep it out of them"
    ]


@pytest.mark.parametrize("text", HARMLESS)
def test_words_that_only_resemble_them_are_accepted(text: str) -> None:
    assert stacks.problems(with_text("pools[0].models[0].path", text)) == ()


def test_a_model_path_with_a_password_is_refused_without_showing_it() -> None:
    said = refusal(changed(one_node(), "pools[0].models[0].path", "s3://me:hunter2@bucket/model"))
    assert "hunter2" not in " ".join(said)


def test_prod_says_whom_to_ask() -> None:
    silent = stacks.without(one_node(), "owner")
    assert refusal(silent) == ["owner: is required in prod: the team to ask about what runs"]
    assert stacks.problems(silent | {"environment": "staging"}) == ()
