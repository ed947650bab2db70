"""`components/data/publish.sh` with the real bash, on folders in the place of upload and volume."""

import os
from pathlib import Path

import pytest

from tests.publishing import Publisher


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(tmp_path)


def test_files_are_on_the_volume_with_their_modes_once_it_says_that_it_is_done(publisher: Publisher) -> None:
    publisher.upload({"a.config": "text\n", "key.pem": "secret"}, modes={"key.pem": "0600"})
    assert publisher.run()[0] is None
    assert publisher.held() == {"a.config": "text\n", "key.pem": "secret"}
    modes = {file.name: file.stat().st_mode & 0o777 for file in publisher.volume.iterdir()}
    assert (modes["a.config"], modes["key.pem"]) == (0o644, 0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away, as only root can")
def test_a_file_of_another_user_is_written_out_where_the_image_has_sync(publisher: Publisher) -> None:
    # What belongs to another and is of mode 600 cannot be opened by root without its powers.
    (publisher.tools / "sync").symlink_to("/usr/bin/sync")
    publisher.confine()
    publisher.upload({"key.pem": "secret"}, modes={"key.pem": "0600"}, owner="101")
    code, said = publisher.run()
    assert code is None, said
    stat = (publisher.volume / "key.pem").stat()
    assert (stat.st_uid, stat.st_mode & 0o777) == (101, 0o600)


def test_a_reader_that_has_a_file_open_keeps_the_whole_old_text(publisher: Publisher) -> None:
    publisher.upload({"a.config": "old" * 1000})
    publisher.run()
    with (publisher.volume / "a.config").open() as reader:
        assert reader.read(3) == "old"
        publisher.upload({"a.config": "new"})
        publisher.run()
        assert reader.read() == "old" * 999
    assert publisher.held() == {"a.config": "new"}


def published_before(publisher: Publisher, numbers: range) -> None:
    """Generations of one file each, as they are remembered."""
    lines = [f"batching-{number}.config fixed.config" for number in numbers]
    (publisher.volume / ".generations").write_text("".join(f"{line}\n" for line in lines))
    for number in numbers:
        (publisher.volume / f"batching-{number}.config").write_text(str(number))


def test_an_instance_that_was_not_rolled_finds_its_file_however_often_others_were_published(
    publisher: Publisher,
) -> None:
    published_before(publisher, range(900))
    publisher.upload({"batching-new.config": "new", "fixed.config": "new"})
    publisher.run()
    assert publisher.held()["batching-0.config"] == "0"


def test_a_volume_does_not_grow_for_ever(publisher: Publisher) -> None:
    published_before(publisher, range(1000))
    publisher.upload({"batching-new.config": "new", "fixed.config": "new"})
    publisher.run()
    assert publisher.held() == {
        "fixed.config": "new",
        "batching-new.config": "new",
        **{f"batching-{number}.config": str(number) for number in range(1, 1000)},
    }


def test_a_generation_that_comes_back_is_the_newest_again(publisher: Publisher) -> None:
    published_before(publisher, range(1000))
    for name in ("batching-0", "batching-new"):
        publisher.upload({f"{name}.config": "0", "fixed.config": "0"})
        publisher.run()
    held = publisher.held()
    assert "batching-0.config" in held
    assert "batching-1.config" not in held


def test_publishing_the_same_again_changes_nothing(publisher: Publisher) -> None:
    for number in (0, 1, 1, 1, *([1] * 10)):
        publisher.upload({f"{number}.config": str(number)})
        publisher.run()
    assert publisher.held() == {"0.config": "0", "1.config": "1"}


def test_a_file_that_somebody_else_put_there_is_left_alone(publisher: Publisher) -> None:
    (publisher.volume / "theirs").write_text("x")
    published_before(publisher, range(1000))
    for number in range(2):
        publisher.upload({f"{number}.config": str(number)})
        publisher.run()
    assert publisher.held()["theirs"] == "x"


def test_what_only_its_owner_may_read_is_left_on_the_volume_alone(publisher: Publisher) -> None:
    modes = {"tls.key": "0600"}
    publisher.upload({"a.config": "text", "tls.key": "secret"}, modes=modes)
    assert publisher.run()[0] is None
    left = [file.name for file in (publisher.uploaded / "files").iterdir()]
    assert (publisher.held()["tls.key"], left) == ("secret", ["a.config"])
    # Nor does one that fails keep it.
    publisher.upload({"a.config": "text", "tls.key": "secret"}, then='fail "no"', modes=modes)
    assert publisher.run()[0] == 1
    assert [file.name for file in (publisher.uploaded / "files").iterdir()] == ["a.config"]


def test_it_fails_and_never_says_done_where_a_file_cannot_be_put(publisher: Publisher) -> None:
    publisher.upload({"a.config": "text"})
    (publisher.uploaded / "files" / "a.config").unlink()
    code, said = publisher.run()
    assert code not in (0, None)
    assert "a.config" in said
    assert not publisher.done()


def test_what_a_killed_run_left_half_written_is_done_again(publisher: Publisher) -> None:
    (publisher.volume / ".new.a.config").write_text("ha")
    (publisher.volume / ".generations.new").write_text("ha")
    publisher.upload({"a.config": "text"})
    assert publisher.run()[0] is None
    assert sorted(file.name for file in publisher.volume.iterdir()) == [".generations", "a.config"]


def test_a_further_script_goes_on_and_decides_whether_it_is_done(publisher: Publisher) -> None:
    publisher.upload({"a.config": "text"}, then='say "goes on"; put "$from/files/a.config" 0644 - copy')
    code, said = publisher.run()
    assert (code, "goes on" in said) == (None, True)
    assert publisher.held() == {"a.config": "text", "copy": "text"}
    publisher.upload({"a.config": "text"}, then='fail "it does not fit"')
    assert publisher.run() == (1, "published a.config\nFAILED: it does not fit\n")
    assert not publisher.done()
