"""Edits of a stack file: what is asked for, and not a character more."""

import pytest

from components.stack_edit import REMOVED, NotEditedError, Path, edited

TEXT = """\
# The pools of a stack.
config:
  tf-serving:pools:
    - name: main # the first
      models:
        - name: resnet50
          versions: {specific: [1]} # one at a time
          labels:
            stable: 1

      slots: [{node: gpu-01, gpus: [0, 1]}]
    - {name: other, models: [{name: bert, versions: {specific: [3]}}]}
"""
POOLS = ("config", "tf-serving:pools")
RELEASE = {"model": "resnet50", "version": 2, "moved": 0}


def test_a_key_is_added_after_the_name_and_comments_stay() -> None:
    done = edited(TEXT, {(*POOLS, 0, "release"): RELEASE})
    added = "      release: {model: resnet50, version: 2, moved: 0}\n"
    assert done == TEXT.replace("# the first\n", f"# the first\n{added}")
    assert edited(done, {(*POOLS, 0, "release", "moved"): 1}) == done.replace("moved: 0", "moved: 1")
    assert edited(done, {(*POOLS, 0, "release"): REMOVED}) == TEXT


def test_the_same_inside_braces() -> None:
    done = edited(TEXT, {(*POOLS, 1, "release"): RELEASE})
    assert "{name: other, release: {model: resnet50, version: 2, moved: 0}, models:" in done
    assert edited(done, {(*POOLS, 1, "release"): REMOVED}) == TEXT


def test_several_values_change_at_once() -> None:
    model: Path = (*POOLS, 0, "models", 0)
    done = edited(TEXT, {(*model, "versions", "specific", 0): 2, (*model, "labels", "stable"): 2})
    assert done == TEXT.replace("specific: [1]", "specific: [2]").replace("stable: 1", "stable: 2")


def test_a_block_is_removed_as_a_whole_and_what_follows_stays() -> None:
    done = edited(TEXT, {(*POOLS, 0, "models", 0, "labels"): REMOVED})
    assert done == TEXT.replace("          labels:\n            stable: 1\n", "")


def test_line_ends_of_windows_stay() -> None:
    text = TEXT.replace("\n", "\r\n")
    done = edited(text, {(*POOLS, 0, "release"): RELEASE})
    assert "\n" not in done.replace("\r\n", "")
    assert edited(done, {(*POOLS, 0, "release"): REMOVED}) == text


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        (TEXT, (*POOLS, 0, "models"), 1),
        (TEXT, (*POOLS, 0, "name"), REMOVED),
        (TEXT, (*POOLS, 5, "name"), "x"),
        # The line is that of two values.
        ("config: {a: &one {n: 1}, b: *one}\n", ("config", "b", "n"), 2),
    ],
)
def test_what_a_person_must_do_is_refused_with_its_place(text: str, path: Path, value: object) -> None:
    with pytest.raises(NotEditedError, match=r"(pools|b)\S*: cannot be changed there"):
        edited(text, {path: value})
