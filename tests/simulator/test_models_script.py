"""`components/data/models.sh` with the real bash, under servers that run."""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.flags import MODELS_POLL_S
from components.model_config import models_config
from components.model_plan import ModelPlan
from components.model_settings import VersionPolicy
from components.scripts import script
from components.server_files import models_script
from tests.publishing import Publisher
from tests.simulator.server import Server, publish, wait_for

pytestmark = pytest.mark.simulator

FILE = "models-0.config"
NEW = "models-1.config"
Start = Callable[..., Server]


class Pool:
    """Servers that read one list of models, and what is published to them."""

    def __init__(self, folder: Path, start: Start) -> None:
        self.publisher = Publisher(folder)
        self.models = folder / "models"
        self.start = start
        self.servers: list[Server] = []
        self.wait_s = 20

    def model(
        self, name: str, *versions: int, labels: dict[str, int] | None = None, **policy: Any
    ) -> ModelPlan:
        """A model; `versions` are put into its folder, where they are not there yet."""
        base = self.models / name
        for version in versions:
            if not (base / str(version)).exists():
                publish(base, version)
        return ModelPlan(
            name=name,
            versions=VersionPolicy(**policy) if policy else VersionPolicy(latest=1),
            labels=tuple(sorted((labels or {}).items())),
            source=str(base),
            target=str(base),
        )

    def run(self, count: int = 2, poll_s: int = 1) -> None:
        flags = [
            f"--model_config_file={self.publisher.volume / FILE}",
            f"--model_config_file_poll_wait_seconds={poll_s}",
            "--allow_version_labels_for_unavailable_models=true",
            "--load_retry_interval_micros=0",
            "--max_num_load_retries=0",
        ]
        self.servers = [self.start(*flags).ready() for _ in range(count)]

    def upload(self, *models: ModelPlan) -> None:
        self.upload_lists({FILE: models}, {FILE: self.servers})

    def upload_lists(
        self, lists: Mapping[str, Sequence[ModelPlan]], readers: Mapping[str, Sequence[Server]], *more: str
    ) -> None:
        """Several lists, and the servers that are to follow each one; `more` is said of each."""
        lines = [f"wait {self.wait_s}"]
        for file in lists:
            lines += [f"file {file}", *more]
            lines += [
                f"instance gpu{self.servers.index(server)} 127.0.0.1/{server.rest_port}"
                for server in readers.get(file, ())
            ]
        self.publisher.upload(
            {file: models_config(models) for file, models in lists.items()},
            then=models_script(),
            modes=dict.fromkeys(lists, "later"),
            then_files={"settings": "".join(f"{line}\n" for line in lines)},
        )

    def publish(self, *models: ModelPlan) -> str:
        """What it says; it must be done."""
        self.upload(*models)
        code, said = self.publisher.run()
        assert code is None, said
        assert self.text() == models_config(models)
        assert self.serving() == [model.name for model in models]
        return said

    def refused(self, *models: ModelPlan) -> str:
        """What it says; it must fail, and leave the volume as it was."""
        before = self.text(), self.serving()
        self.upload(*models)
        code, said = self.publisher.run()
        assert code == 1, said
        assert (self.text(), self.serving()) == before
        return said

    def text(self) -> str:
        return (self.publisher.volume / FILE).read_text()

    def serving(self) -> list[str]:
        return (self.publisher.volume / f"{FILE}.serving").read_text().split()

    def label(self, server: Server, model: str, label: str) -> str:
        reply = server.rest(f"/v1/models/{model}/labels/{label}/metadata")
        return str(reply.json["model_spec"]["version"]) if reply.status == 200 else str(reply.status)


@pytest.fixture
def pool(tmp_path: Path, start: Start) -> Pool:
    return Pool(tmp_path, start)


def test_a_first_list_is_put_there_at_once_with_nobody_to_wait_for(pool: Pool) -> None:
    pool.publish(pool.model("a", 1), pool.model("b", 1, 2, labels={"stable": 1}, specific=(1, 2)))


def test_another_policy_is_waited_for_on_every_server(pool: Pool) -> None:
    pool.publish(pool.model("a", 1, 2))
    pool.run()
    pool.publish(pool.model("a", latest=2))
    for server in pool.servers:
        assert server.states("a") == {1: "AVAILABLE", 2: "AVAILABLE"}


def test_a_label_moves_to_a_version_that_was_not_loaded_and_the_old_one_then_goes(pool: Pool) -> None:
    pool.publish(pool.model("a", 1, 2, labels={"stable": 1}, specific=(1,)))
    pool.run()
    assert [pool.label(server, "a", "stable") for server in pool.servers] == ["1", "1"]
    said = pool.publish(pool.model("a", labels={"stable": 2}, specific=(2,)))
    assert "moving labels" in said
    for server in pool.servers:
        assert pool.label(server, "a", "stable") == "2"
        wait_for("version 1 gone", lambda server=server: _available(server) == {2})  # type: ignore[misc]


def test_labels_swap_and_others_come_and_go_in_one_go(pool: Pool) -> None:
    pool.publish(pool.model("a", 1, 2, 3, labels={"stable": 1, "canary": 2, "gone": 1}, specific=(1, 2)))
    pool.run()
    pool.publish(pool.model("a", labels={"stable": 2, "canary": 3, "new": 2}, specific=(2, 3)))
    for server in pool.servers:
        named = {label: pool.label(server, "a", label) for label in ("stable", "canary", "new")}
        assert named == {"stable": "2", "canary": "3", "new": "2"}


def test_a_first_label_reaches_servers_that_were_started_without_one(pool: Pool) -> None:
    pool.publish(pool.model("a", 1, specific=(1,)))
    pool.run()
    pool.publish(pool.model("a", labels={"stable": 1}, specific=(1,)))
    assert [pool.label(server, "a", "stable") for server in pool.servers] == ["1", "1"]


def test_a_model_comes_with_its_labels_and_another_goes(pool: Pool) -> None:
    pool.publish(pool.model("a", 1), pool.model("b", 1))
    pool.run()
    pool.publish(pool.model("a"), pool.model("c", 1, 2, labels={"stable": 1}, specific=(1, 2)))
    for server in pool.servers:
        assert server.states("c") == {1: "AVAILABLE", 2: "AVAILABLE"}
        assert pool.label(server, "c", "stable") == "1"
        wait_for("b gone", lambda server=server: not _answers(server, "b"))  # type: ignore[misc]


def test_publishing_the_same_again_asks_nobody(pool: Pool) -> None:
    model = pool.model("a", 1)
    pool.publish(model)
    pool.run(1)
    pool.servers[0].process.send_signal(signal.SIGSTOP)
    assert pool.publish(model) == "published \nmodels: a\n"
    pool.servers[0].process.send_signal(signal.SIGCONT)


def test_a_server_that_does_not_run_is_not_waited_for(pool: Pool) -> None:
    pool.publish(pool.model("a", 1, 2, labels={"stable": 1}, specific=(1,)))
    pool.run()
    pool.servers[1].stop()
    said = pool.publish(pool.model("a", labels={"stable": 2}, specific=(2,)))
    assert "gpu1 does not run" in said
    assert pool.label(pool.servers[0], "a", "stable") == "2"


def test_a_version_that_is_not_there_is_refused_before_anything_is_written(pool: Pool) -> None:
    pool.publish(pool.model("a", 1, labels={"stable": 1}, specific=(1,)))
    pool.run()
    said = pool.refused(pool.model("a", labels={"stable": 2}, specific=(2,)))
    assert f"a: {pool.models / 'a'} has no version 2, only 1: nothing was changed" in said
    assert [pool.label(server, "a", "stable") for server in pool.servers] == ["1", "1"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda pool: pool.model("b"), "b: {models}/b is no folder of the node"),
        (lambda pool: replace(pool.model("b", 1), target=str(pool.models)), "b: {models} holds no version"),
        (lambda pool: replace(pool.model("a"), target=f"{pool.models}/b"), "take the model out, run up"),
    ],
)
def test_a_base_path_that_would_block_every_later_change_is_refused(
    pool: Pool, wrong: Callable[[Pool], ModelPlan], said: str
) -> None:
    pool.publish(pool.model("a", 1))
    pool.run(1)
    if "take" in said:
        pool.model("b", 1)
    broken = wrong(pool)
    others = [pool.model("a")] if broken.name != "a" else []
    assert said.format(models=pool.models) in pool.refused(*others, broken)
    pool.publish(pool.model("a", 1, 2, specific=(1, 2)))


def test_a_version_that_cannot_be_loaded_is_told_with_the_servers_reason_and_the_old_one_serves(
    pool: Pool,
) -> None:
    pool.publish(pool.model("a", 1, labels={"stable": 1}, specific=(1,)))
    pool.run()
    publish(pool.models / "a", 2, {"saved_model.pb": ""})
    said = pool.refused(pool.model("a", labels={"stable": 2}, specific=(2,)))
    assert "cannot load version 2 of a: " in said
    assert "what served then still does" in said
    for server in pool.servers:
        assert pool.label(server, "a", "stable") == "1"
        assert server.states("a")[1] == "AVAILABLE"
    publish(pool.models / "a", 3)
    pool.publish(pool.model("a", labels={"stable": 3}, specific=(3,)))


def test_what_a_server_said_of_an_earlier_try_does_not_end_the_next(pool: Pool) -> None:
    first, wanted = pool.model("a", 1, specific=(1,)), pool.model("a", specific=(1, 2))
    pool.publish(first)
    pool.run(poll_s=2)
    publish(pool.models / "a", 2, {"simulator_load_error": "out of memory"})
    assert "out of memory" in pool.refused(wanted)
    reads = "Finished adding/updating models"
    for server in pool.servers:
        # It lets go of the version at a look at the folder, after one at the list.
        seen = server.printed().count(reads)
        wait_for("the old list", lambda server=server, seen=seen: server.printed().count(reads) > seen + 1)  # type: ignore[misc]
    (pool.models / "a" / "2" / "simulator_load_error").unlink()
    assert all("out of memory" in server.rest("/v1/models/a").text for server in pool.servers)
    pool.publish(wanted)
    assert [_available(server) for server in pool.servers] == [{1, 2}] * 2


def test_a_try_that_fails_as_the_one_before_is_refused_too(pool: Pool) -> None:
    pool.publish(pool.model("a", 1, specific=(1,)))
    pool.run()
    publish(pool.models / "a", 2, {"simulator_load_error": "out of memory"})
    for _ in range(2):
        said = pool.refused(pool.model("a", specific=(1, 2)))
        assert "cannot load version 2 of a: " in said


def test_the_script_knows_how_often_servers_look_at_their_list() -> None:
    assert f"\npoll_s={MODELS_POLL_S} " in script("models.sh")


def test_a_server_that_hangs_fails_it_by_name_and_the_old_list_is_back(pool: Pool) -> None:
    pool.publish(pool.model("a", 1, 2, specific=(1,)))
    pool.run()
    pool.wait_s = 12
    pool.servers[1].process.send_signal(signal.SIGSTOP)
    try:
        said = pool.refused(pool.model("a", specific=(2,)))
    finally:
        pool.servers[1].process.send_signal(signal.SIGCONT)
    assert "gpu1 has not loaded version 2 of a after 12 s" in said


@pytest.mark.parametrize("step", ["loading what", "moving labels"])
def test_a_run_that_is_killed_in_the_middle_is_finished_by_the_next(pool: Pool, step: str) -> None:
    pool.publish(pool.model("a", 1, 2, labels={"stable": 1}, specific=(1,)))
    pool.run()
    target = pool.model("a", labels={"stable": 2}, specific=(2,))
    pool.upload(target)
    process = pool.publisher.start()
    assert process.stdout is not None
    for line in process.stdout:
        if step in line:
            break
    process.kill()
    process.communicate()
    assert "specific" in pool.text()
    pool.publish(target)
    assert [pool.label(server, "a", "stable") for server in pool.servers] == ["2", "2"]


def _cut_off(pool: Pool, *models: ModelPlan) -> None:
    """Publish, and kill it while servers load what the list has."""
    pool.upload(*models)
    process = pool.publisher.start()
    wait_for("the list", lambda: pool.text() == models_config(models))
    process.kill()
    process.communicate()


def test_models_that_still_load_as_a_run_is_killed_are_waited_for_by_the_next(pool: Pool) -> None:
    first = pool.model("a", 1)
    pool.publish(first)
    pool.run()
    slow = pool.model("b")
    publish(pool.models / "b", 1, {"simulator_load_seconds": "4"})
    _cut_off(pool, first, slow)
    assert pool.serving() == ["a"]
    pool.publish(first, slow)
    assert [server.states("b") for server in pool.servers] == [{1: "AVAILABLE"}] * 2
    pool.servers[0].process.send_signal(signal.SIGSTOP)
    assert pool.publish(first, slow) == "published \nmodels: a b\n"
    pool.servers[0].process.send_signal(signal.SIGCONT)


def test_what_a_killed_run_left_and_cannot_be_loaded_is_told_and_no_health_check_asks_for_it(
    pool: Pool,
) -> None:
    first, broken = pool.model("a", 1), pool.model("b")
    pool.publish(first)
    pool.run()
    publish(pool.models / "b", 1, {"simulator_load_seconds": "3", "simulator_load_error": "out of memory"})
    _cut_off(pool, first, broken)
    said = pool.refused(first, broken)
    assert "cannot load version 1 of b: " in said
    assert "out of memory" in said
    # Nor while another change is made, or once that is taken back.
    publish(pool.models / "c", 1, {"simulator_load_error": "no such device"})
    assert "cannot load version 1 of " in pool.refused(first, broken, pool.model("c"))
    assert pool.serving() == ["a"]
    pool.publish(first)


def test_a_run_that_is_killed_is_finished_where_versions_have_lists_of_their_own(pool: Pool) -> None:
    first, slow = pool.model("a", 1, specific=(1,)), pool.model("b", specific=(1,))
    pool.publish(first)
    pool.run()
    publish(pool.models / "b", 1, {"simulator_load_seconds": "4"})
    _cut_off(pool, first, slow)
    for server in pool.servers:
        wait_for("b", lambda server=server: server.states("b") != {})  # type: ignore[misc]
    pool.upload_lists({FILE: [first, slow]}, {FILE: pool.servers}, "by-version")
    code, said = pool.publisher.run()
    assert code is None, said
    assert pool.serving() == ["a", "b"]
    assert [server.states("b") for server in pool.servers] == [{1: "AVAILABLE"}] * 2


def test_going_back_is_the_same_as_going_on(pool: Pool) -> None:
    first = pool.model("a", 1, 2, labels={"stable": 1}, specific=(1,))
    pool.publish(first)
    pool.run(1)
    pool.publish(pool.model("a", labels={"stable": 2}, specific=(2,)))
    pool.publish(first)
    assert pool.label(pool.servers[0], "a", "stable") == "1"


def test_all_versions_of_a_folder_are_waited_for_but_not_what_is_no_version(pool: Pool) -> None:
    pool.publish(pool.model("a", 1, 2, 10, specific=(1,)))
    publish(pool.models / "a", "00000012")
    publish(pool.models / "a", "v3")
    pool.run(1)
    pool.publish(pool.model("a", all=True))
    assert set(pool.servers[0].states("a")) == {1, 2, 10, 12}
    pool.publish(pool.model("a", latest=2))
    wait_for("the newest two", lambda: _available(pool.servers[0]) == {10, 12})


def _available(server: Server) -> set[int]:
    return {version for version, state in server.states("a").items() if state == "AVAILABLE"}


def _answers(server: Server, model: str) -> bool:
    return server.rest(f"/v1/models/{model}/metadata").status == 200


def test_servers_of_two_lists_each_get_what_their_list_says(pool: Pool) -> None:
    one, other = pool.model("a", 1, specific=(1,)), pool.model("a", 2, labels={"stable": 2}, specific=(2,))
    pool.publish(one)
    pool.run()
    # The second one is to be moved: nobody follows the new list yet.
    first, second = pool.servers
    pool.upload_lists({FILE: [one], NEW: [other]}, {FILE: [first], NEW: [second]}, "by-version")
    code, said = pool.publisher.run()
    assert code is None, said
    assert pool.publisher.held()[NEW] == models_config([other])
    assert (_available(first), _available(second)) == ({1}, {1})
    # A label of the new list is waited for where that is followed, and nowhere else.
    labelled = replace(other, labels=(("newest", 2), ("stable", 2)))
    pool.upload_lists({FILE: [one], NEW: [labelled]}, {FILE: [first], NEW: [second]}, "by-version")
    code, said = pool.publisher.run()
    assert code is None, said
    assert "gpu1 has another list" in said
    assert pool.publisher.held()[NEW] == models_config([labelled])


def test_a_list_for_its_versions_is_refused_before_a_server_is_replaced_for_it(pool: Pool) -> None:
    one = pool.model("a", 1, specific=(1,))
    pool.publish(one)
    lists = {FILE: [one], NEW: [pool.model("a", specific=(2,))]}
    pool.upload_lists(lists, {}, "by-version")
    code, said = pool.publisher.run()
    assert code == 1
    assert f"a: {pool.models / 'a'} has no version 2, only 1: nothing was changed" in said
    assert NEW not in pool.publisher.held()
