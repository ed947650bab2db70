"""`make release` in a copy of the checkout, under load; the tests build on each other."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from images.samples import write_sample_models
from ops.daemon import send
from tests.integration import predict
from tests.integration.docker_cli import DockerCli
from tests.integration.drill import descendants, wait_until
from tests.integration.predict import Answer, Load
from tests.ops.checkout import Checkout, copy_checkout, free_subnet

pytestmark = pytest.mark.integration

INSTANCES = [f"local.local-gpu{index}" for index in range(4)]
HEADER = "x-tf-model-version"
MODEL = "- {name: half_plus_two, path: ./.local/models/half_plus_two"


@dataclass
class Deployed:
    """The local stack, with one of the two versions that are on its disk."""

    checkout: Checkout
    started: "list[Running]" = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.checkout.folder / "Pulumi.local.yaml"

    def port(self, name: str) -> int:
        [port] = re.findall(rf"{name}: (\d+)", self.file.read_text())
        return int(port)

    @property
    def engine(self) -> DockerCli:
        return DockerCli(self.checkout.engine().docker_host)

    def servers(self) -> dict[str, str]:
        return {name: identity for name, identity in self.engine.ids().items() if name in INSTANCES}

    def replaced_since(self, before: dict[str, str]) -> list[str]:
        now = self.servers()
        return [name for name in INSTANCES if now.get(name, before[name]) != before[name]]

    def make(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return self.checkout.make(*arguments)

    def start(self, arguments: str) -> "Running":
        self.started.append(Running(self.checkout, arguments))
        return self.started[-1]

    def rest(self, version: str | None = None, path: str = "") -> Callable[[], Answer]:
        port, model = self.port("rest_port"), f"{predict.MODEL}{path}"
        return lambda: predict.rest(port, model=model, headers={HEADER: version} if version else None)

    def grpc(self, version: int | None = None, header: str | None = None) -> Callable[[], Answer]:
        port = self.port("grpc_port")
        named = {HEADER: header} if header else None
        return lambda: predict.over_grpc(port, version=version, headers=named)

    @contextmanager
    def asked(self, *questions: Callable[[], Answer]) -> Iterator[None]:
        """Clients ask all of it all the time, and nothing fails."""
        loads = [Load(question, clients=1) for question in questions]
        with ExitStack() as running:
            for load in loads:
                running.enter_context(load)
            yield
        for load in loads:
            assert set(load.outcomes) == {"answered"}, [load.outcomes for load in loads]


class Running:
    """A `make release` that runs."""

    def __init__(self, checkout: Checkout, arguments: str) -> None:
        self.log = checkout.folder.parent / f"release-{os.urandom(4).hex()}.log"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                checkout.command("release", f"ARGS={arguments}"),
                cwd=checkout.folder,
                env=checkout.env(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(lambda: self.process.poll() is not None or condition(), what, 300)
        assert self.process.poll() is None, self.said()

    def kill(self) -> None:
        """SIGKILL for make and all below it, Pulumi and its plugins too."""
        if self.process.poll() is not None:
            return
        below = descendants(self.process.pid)
        for pid in (self.process.pid, *below):
            send(pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    folder = tmp_path_factory.mktemp("release")
    checkout = copy_checkout(folder / "checkout", folder / "home", free_subnet())
    made = Deployed(checkout)
    text = made.file.read_text()
    assert MODEL in text
    one = f"{MODEL}, versions: {{specific: [1]}}, labels: {{stable: 1}}"
    made.file.write_text(text.replace(MODEL, one))
    write_sample_models(checkout.folder / ".local" / "models", versions=(1, 2))
    try:
        done = made.make("up")
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        yield made
    finally:
        for running in made.started:
            running.kill()  # one that waits after a test that failed would go on
        made.make("down")
        checkout.engine().remove()


def test_a_release_waits_after_a_step_and_moves_back_with_no_request_lost(deployed: Deployed) -> None:
    text, before = deployed.file.read_text(), deployed.servers()
    everybody = [
        deployed.rest(),
        deployed.grpc(),
        deployed.rest("stable"),
        deployed.rest(path="/labels/stable"),
    ]
    who_wants_the_old = [
        deployed.rest("1"),
        deployed.rest(path="/versions/1"),
        deployed.grpc(version=1),
        deployed.grpc(header="1"),
    ]
    with deployed.asked(*everybody, *who_wants_the_old):
        running = deployed.start("main --to 2 --yes --pause 600")
        running.wait_for(lambda: "next step in 600 s" in running.said(), "a pause")
        assert deployed.replaced_since(before) == INSTANCES[:1]
        assert "release: {model: half_plus_two, version: 2, moved: 1}" in deployed.file.read_text()
        assert {deployed.rest("2")().served_by for _ in range(10)} == {"local-gpu0"}
        assert {deployed.grpc(version=2)().served_by for _ in range(10)} == {"local-gpu0"}
        assert len({deployed.rest()().served_by for _ in range(60)}) == 4
        status = deployed.make("release", "ARGS=main --status")  # beside the one that waits
        assert "to version 2 is under way, 1 of 4 instances moved" in status.stdout
        rows = [line.split() for line in status.stdout.splitlines() if line.strip().startswith("local-gpu")]
        assert [row[2] for row in rows] == ["half_plus_two=2", *["half_plus_two=1"] * 3]
        assert [row[3] for row in rows] == ["half_plus_two=2", *["as"] * 3]  # as its list of models says
        os.kill(running.process.pid, signal.SIGTERM)
        running.process.wait(timeout=60)
        assert "--abort" in running.said()
        assert "Traceback" not in running.said()
        back = deployed.make("release", "ARGS=main --abort --yes")
    assert back.returncode == 0, f"{back.stdout[-3000:]}\n{back.stderr[-3000:]}"
    assert deployed.replaced_since(before) == INSTANCES[:1]
    assert deployed.file.read_text() == text
    assert deployed.rest("2")().status == 400


def test_what_cannot_be_released_changes_nothing(deployed: Deployed) -> None:
    text, before = deployed.file.read_text(), deployed.servers()
    lacking = deployed.make("release", "ARGS=main --to 7 --yes")
    assert "half_plus_two has no version 7" in lacking.stderr
    deployed.file.write_text(text.replace("batch_timeout_micros: 2000", "batch_timeout_micros: 2500"))
    edited = deployed.make("release", "ARGS=main --to 2 --yes")
    assert "other changes must not ride along" in edited.stderr
    assert "release:" not in deployed.file.read_text()
    deployed.file.write_text(text)
    assert (lacking.returncode, edited.returncode) == (2, 2)  # of make
    assert deployed.servers() == before


def test_a_release_that_is_killed_in_a_step_goes_on_to_its_end_with_no_request_lost(
    deployed: Deployed,
) -> None:
    before = deployed.servers()
    with deployed.asked(deployed.rest(), deployed.grpc(), deployed.rest("stable")):
        running = deployed.start("main --to 2 --yes --pause 3")
        running.wait_for(lambda: "next step in 3 s" in running.said(), "a first pause")
        with deployed.asked(
            deployed.rest("2"),
            deployed.rest(path="/versions/2"),
            deployed.grpc(version=2),
            deployed.grpc(header="2"),
        ):
            running.wait_for(lambda: INSTANCES[2] in deployed.replaced_since(before), "the third one made")
            running.kill()
            other = deployed.make("release", "ARGS=main --to 1 --yes")
            assert "is under way, 3 of 4 instances moved" in other.stderr
            done = deployed.make("release", "ARGS=main --to 2 --yes --pause 0")
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert deployed.replaced_since(before) == INSTANCES
    [pool] = re.findall(r"    - name: main\n(?:      .*\n)+", deployed.file.read_text())
    assert "versions: {specific: [2]}, labels: {stable: 2}" in pool
    assert "release:" not in pool
    after = deployed.servers()
    again = deployed.make("up", "ARGS=--refresh --expect-no-changes")
    assert again.returncode == 0, f"{again.stdout[-3000:]}\n{again.stderr[-3000:]}"
    assert deployed.servers() == after
    assert deployed.rest("1")().status == 400
