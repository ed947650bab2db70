"""The language host as the engine sees it: a process that serves gRPC, runs programs, and obeys signals."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import language_pb2, language_pb2_grpc

from tests.toolchain.fake_engine import FakeEngine, fake_engine
from toolchain.versions import REPOSITORY, versions

VENV = Path(sys.prefix)
Write = Callable[[str], language_pb2.ProgramInfo]


@dataclass(frozen=True)
class Host:
    """A running language host."""

    process: subprocess.Popen[str]
    stub: language_pb2_grpc.LanguageRuntimeStub
    pulumi_home: Path

    def interrupt_group(self) -> None:
        """What the engine does when it closes a plugin."""
        os.killpg(self.process.pid, signal.SIGINT)


@contextmanager
def running_host(engine: FakeEngine, home: Path) -> Iterator[Host]:
    command = [sys.executable, "-m", "toolchain.language_host", "--tracing", "ignored", engine.address]
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "PULUMI_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Host(process, language_pb2_grpc.LanguageRuntimeStub(channel), home)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture(scope="module")
def shared_engine() -> Iterator[FakeEngine]:
    with fake_engine() as running:
        yield running


@pytest.fixture(scope="module")
def host(shared_engine: FakeEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The host of every test that leaves it running."""
    with running_host(shared_engine, tmp_path_factory.mktemp("pulumi-home")) as running:
        yield running


@pytest.fixture
def host_to_end(shared_engine: FakeEngine, tmp_path: Path) -> Iterator[Host]:
    """A host for one test, which may end it."""
    with running_host(shared_engine, tmp_path / "pulumi-home") as running:
        yield running


@pytest.fixture
def engine(shared_engine: FakeEngine) -> FakeEngine:
    shared_engine.forget()
    return shared_engine


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a program and describes it as the engine does for a Pulumi.yaml with the option `virtualenv`."""

    def program(source: str) -> language_pb2.ProgramInfo:
        folder = tmp_path / "program"
        folder.mkdir(exist_ok=True)
        (folder / "__main__.py").write_text(textwrap.dedent(source))
        return info(folder, virtualenv=str(VENV))

    return program


def info(folder: Path, **options: str) -> language_pb2.ProgramInfo:
    described = language_pb2.ProgramInfo(
        root_directory=str(folder), program_directory=str(folder), entry_point="."
    )
    described.options.update(options)
    return described


def request(engine: FakeEngine, program: language_pb2.ProgramInfo) -> language_pb2.RunRequest:
    return language_pb2.RunRequest(
        project="p",
        stack="s",
        pwd=program.program_directory,
        monitor_address=engine.address,
        parallel=4,
        dryRun=True,
        organization="team",
        config={"p:size": "3", "p:token": "hidden"},
        configSecretKeys=["p:token"],
        info=program,
    )


def test_a_program_runs_with_its_config_and_its_exports_reach_the_engine(
    host: Host, engine: FakeEngine, write: Write
) -> None:
    program = write("""
        import pulumi

        pulumi.export("size", pulumi.Config().require_int("size"))
        pulumi.export("where", f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}")
        pulumi.export("dry", pulumi.runtime.is_dry_run())
    """)
    answer = host.stub.Run(request(engine, program))
    assert (answer.error, answer.bail) == ("", False)
    assert engine.outputs == {"size": 3, "where": "team/p/s", "dry": True}


def test_a_program_runs_with_the_virtual_environment_of_its_project(
    host: Host, engine: FakeEngine, write: Write
) -> None:
    program = write("""
        import os, sys
        import pulumi

        pulumi.export("python", sys.prefix)
        pulumi.export("activated", os.environ["VIRTUAL_ENV"])
        pulumi.export("first", os.environ["PATH"].split(os.pathsep)[0])
    """)
    host.stub.Run(request(engine, program))
    assert engine.outputs == {"python": str(VENV), "activated": str(VENV), "first": f"{VENV}/bin"}


def test_a_virtualenv_option_is_relative_to_the_project(
    host: Host, engine: FakeEngine, write: Write, tmp_path: Path
) -> None:
    described = write("import pulumi\npulumi.export('ran', True)")
    (tmp_path / "program" / "env").symlink_to(VENV)
    described.options.update({"virtualenv": "env"})
    assert host.stub.Run(request(engine, described)).error == ""
    assert engine.outputs == {"ran": True}


def test_an_exception_is_shown_once_with_the_frames_of_the_program_alone(
    host: Host, engine: FakeEngine, write: Write, tmp_path: Path
) -> None:
    program = write("""
        import helper

        helper.look_up({})
    """)
    (tmp_path / "program" / "helper.py").write_text("def look_up(table):\n    return table['gpu']\n")
    answer = host.stub.Run(request(engine, program))
    assert (answer.error, answer.bail) == ("", True)
    [message] = engine.errors()
    assert message.startswith("Traceback (most recent call last):\n")
    assert message.endswith("KeyError: 'gpu'\n")
    files = [line.split('"')[1] for line in message.splitlines() if line.startswith('  File "')]
    assert files == [str(tmp_path / "program" / name) for name in ("__main__.py", "helper.py")]


def test_an_exception_in_an_apply_is_shown_from_the_program_on(
    host: Host, engine: FakeEngine, write: Write
) -> None:
    program = write("""
        import pulumi

        pulumi.export("a", pulumi.Output.from_input(3).apply(lambda value: value / 0))
    """)
    assert host.stub.Run(request(engine, program)).bail
    [message] = engine.errors()
    assert "ZeroDivisionError" in message
    assert message.splitlines()[1].strip().startswith('File "')
    assert "site-packages" not in message


def test_a_syntax_error_is_shown_with_its_line_and_no_frames_of_ours(
    host: Host, engine: FakeEngine, write: Write
) -> None:
    assert host.stub.Run(request(engine, write("size = = 3"))).bail
    [message] = engine.errors()
    assert "size = = 3" in message
    assert "runpy" not in message


def test_a_run_error_is_shown_as_its_message_without_a_traceback(
    host: Host, engine: FakeEngine, write: Write
) -> None:
    program = write("""
        import pulumi

        raise pulumi.RunError("nodes[0].gpus: two lines\\nof advice")
    """)
    assert host.stub.Run(request(engine, program)).bail
    assert engine.errors() == ["nodes[0].gpus: two lines\nof advice"]


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import sys\nsys.exit(3)", "the program exited with code 3"),
        ("import os\nos.kill(os.getpid(), 9)", "the program was ended by signal 9"),
    ],
)
def test_a_program_that_ends_by_itself_without_an_error_shown_is_reported(
    host: Host, engine: FakeEngine, write: Write, source: str, error: str
) -> None:
    answer = host.stub.Run(request(engine, write(source)))
    assert (answer.error, answer.bail) == (error, False)
    assert engine.errors() == []


def test_what_a_program_prints_comes_out_of_the_host(
    host_to_end: Host, engine: FakeEngine, write: Write
) -> None:
    program = write("import sys\nprint('to out')\nprint('to err', file=sys.stderr)")
    host_to_end.stub.Run(request(engine, program))
    host_to_end.interrupt_group()
    assert host_to_end.process.communicate(timeout=10) == ("to out\n", "to err\n")


def test_a_missing_virtual_environment_is_named_with_what_to_type(
    host: Host, engine: FakeEngine, tmp_path: Path
) -> None:
    answer = host.stub.Run(request(engine, info(tmp_path, virtualenv="gone")))
    assert str(tmp_path / "gone") in answer.error
    assert "python3 -m toolchain setup" in answer.error


WAITS = """
    import pathlib, time

    pathlib.Path("started").touch()
    while True:
        time.sleep(0.05)
"""


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    # A program starts in about a second; there is nothing to wait on but its sign of life.
    while not path.exists():
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)


def test_an_interrupt_of_the_group_ends_the_program_then_the_host_and_prints_nothing(
    host_to_end: Host, engine: FakeEngine, write: Write, tmp_path: Path
) -> None:
    answer = host_to_end.stub.Run.future(request(engine, write(WAITS)))
    wait_for(tmp_path / "program" / "started", host_to_end.process)
    host_to_end.interrupt_group()
    assert answer.result(timeout=10).bail
    assert host_to_end.process.wait(10) == 0
    assert host_to_end.process.communicate() == ("", "")


def test_an_interrupted_host_waits_for_a_program_that_still_puts_things_in_order(
    host_to_end: Host, engine: FakeEngine, write: Write, tmp_path: Path
) -> None:
    program = write("""
        import os, pathlib, signal, time

        def put_in_order(*_):
            while not pathlib.Path("go on").exists():
                time.sleep(0.02)
            os._exit(0)

        signal.signal(signal.SIGINT, put_in_order)
        pathlib.Path("started").touch()
        while True:
            time.sleep(0.05)
    """)
    answer = host_to_end.stub.Run.future(request(engine, program))
    wait_for(tmp_path / "program" / "started", host_to_end.process)
    host_to_end.interrupt_group()
    with pytest.raises(subprocess.TimeoutExpired):
        host_to_end.process.wait(1)
    (tmp_path / "program" / "go on").touch()
    assert (answer.result(timeout=10).error, host_to_end.process.wait(10)) == ("", 0)


def test_cancel_ends_the_program_and_the_host_stays(
    host: Host, engine: FakeEngine, write: Write, tmp_path: Path
) -> None:
    answer = host.stub.Run.future(request(engine, write(WAITS)))
    wait_for(tmp_path / "program" / "started", host.process)
    host.stub.Cancel(empty_pb2.Empty())
    assert answer.result(timeout=10).bail
    assert host.stub.GetPluginInfo(empty_pb2.Empty()).version == versions().pulumi


def test_a_host_with_nothing_to_run_leaves_at_once_when_interrupted(host_to_end: Host) -> None:
    host_to_end.interrupt_group()
    assert host_to_end.process.wait(2) == 0


def test_a_policy_pack_runs_with_its_own_environment_and_its_output_is_passed_on(
    host: Host, write: Write, tmp_path: Path
) -> None:
    pack = write("""
        import os, sys

        print(sys.argv[1:], os.environ["EXTRA"], sys.prefix, os.getcwd())
        print("warning", file=sys.stderr)
        sys.exit(7)
    """)
    answers = list(
        host.stub.RunPlugin(
            language_pb2.RunPluginRequest(
                pwd=str(tmp_path), kind="analyzer", args=["127.0.0.1:1"], env=["EXTRA=a=b"], info=pack
            )
        )
    )
    stdout = b"".join(answer.stdout for answer in answers).decode()
    stderr = b"".join(answer.stderr for answer in answers).decode()
    assert stdout == f"['127.0.0.1:1'] a=b {VENV} {tmp_path}\n"
    assert stderr == "warning\n"
    assert answers[-1].exitcode == 7


def test_only_plugins_that_are_installed_are_required(host: Host, write: Write) -> None:
    docker = versions().plugins["docker"]
    (host.pulumi_home / "plugins" / f"resource-docker-v{docker}").mkdir(parents=True)
    answer = host.stub.GetRequiredPackages(language_pb2.GetRequiredPackagesRequest(info=write("")))
    found = [(package.kind, package.name, package.version) for package in answer.packages]
    assert found == [("resource", "docker", f"v{docker}")]


def test_pulumi_about_gets_the_interpreter_and_the_direct_packages(host: Host, write: Write) -> None:
    program = write("")
    about = host.stub.About(language_pb2.AboutRequest(info=program))
    assert (about.executable, about.version) == (str(VENV / "bin" / "python"), sys.version.split()[0])
    listed = host.stub.GetProgramDependencies(language_pb2.GetProgramDependenciesRequest(info=program))
    names = {package.name for package in listed.dependencies}
    assert "pulumi_docker" in names
    assert "grpcio" not in names


def test_generating_code_is_declined_with_a_reason(host: Host) -> None:
    with pytest.raises(grpc.RpcError) as declined:
        host.stub.GenerateProgram(language_pb2.GenerateProgramRequest())
    assert declined.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert "generates no code" in str(declined.value.details())
