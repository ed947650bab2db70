"""What the engine asks a language host for."""

import importlib.metadata
import json
import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NoReturn

import grpc
from google.protobuf import empty_pb2
from google.protobuf.message import Message
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

from .children import Children, interrupt
from .interpreter import Interpreter, InterpreterError, find
from .run_program import INTERRUPTED, SHOWN

RUN_PROGRAM = Path(__file__).with_name("run_program.py")


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """Runs programs and policy packs with the interpreter that their project names."""

    def __init__(self, *, engine: str, children: Children) -> None:
        self._engine = engine
        self._children = children

    def Handshake(  # noqa: N802
        self, request: language_pb2.LanguageHandshakeRequest, _context: grpc.ServicerContext
    ) -> language_pb2.LanguageHandshakeResponse:
        """Learn the engine's address, where the command line did not tell it."""
        self._engine = request.engine_address or self._engine
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(  # noqa: N802
        self, _request: empty_pb2.Empty, _context: grpc.ServicerContext
    ) -> plugin_pb2.PluginInfo:
        """Say which SDK the host was made for."""
        return plugin_pb2.PluginInfo(version=importlib.metadata.version("pulumi"))

    def Run(  # noqa: N802
        self, request: language_pb2.RunRequest, context: grpc.ServicerContext
    ) -> language_pb2.RunResponse:
        """Run a program and wait for it; `bail` says that the user has seen the error."""
        try:
            interpreter = find(request.info)
        except InterpreterError as error:
            return language_pb2.RunResponse(error=str(error))
        env = interpreter.environment(os.environ)
        env["PULUMI_CONFIG"] = json.dumps(dict(request.config))
        env["PULUMI_CONFIG_SECRET_KEYS"] = json.dumps(list(request.configSecretKeys))
        command = [str(interpreter.python), "-u", str(RUN_PROGRAM), json.dumps(self._description(request))]
        with self._children.start(command, cwd=request.pwd, env=env, captured=False) as process:
            context.add_callback(lambda: interrupt(process))
            code = process.wait()
        if code in (0, SHOWN, INTERRUPTED):
            return language_pb2.RunResponse(bail=code != 0)
        ended = f"exited with code {code}" if code > 0 else f"was ended by signal {-code}"
        return language_pb2.RunResponse(error=f"the program {ended}")

    def RunPlugin(  # noqa: N802
        self, request: language_pb2.RunPluginRequest, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.RunPluginResponse]:
        """Run a policy pack (or another plugin in Python) and pass on what it prints."""
        interpreter = _find_or_abort(request.info, context)
        env = interpreter.environment(os.environ)
        for entry in request.env:
            name, _, value = entry.partition("=")
            env[name] = value
        program = Path(request.info.program_directory) / request.info.entry_point
        command = [str(interpreter.python), "-u", str(program), *request.args]
        with self._children.start(command, cwd=request.pwd, env=env, captured=True) as process:
            context.add_callback(lambda: interrupt(process))
            for stream, chunk in _output(process.stdout, process.stderr):
                if stream == "stdout":
                    yield language_pb2.RunPluginResponse(stdout=chunk)
                else:
                    yield language_pb2.RunPluginResponse(stderr=chunk)
            yield language_pb2.RunPluginResponse(exitcode=process.wait())

    def GetRequiredPackages(  # noqa: N802
        self, request: language_pb2.GetRequiredPackagesRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetRequiredPackagesResponse:
        """Name the plugins of the project's packages that are installed.

        The others are left out: the engine would try to download them, and here that can't work.
        """
        interpreter = _find_or_abort(request.info, context)
        plugins = Path(os.environ.get("PULUMI_HOME", Path.home() / ".pulumi")) / "plugins"
        packages: list[plugin_pb2.PackageDependency] = []
        for file in interpreter.plugin_files():
            plugin = json.loads(file.read_text())
            name, version = plugin.get("name"), plugin.get("version")
            if plugin.get("resource") and (plugins / f"resource-{name}-v{version}").is_dir():
                packages.append(
                    plugin_pb2.PackageDependency(name=name, kind="resource", version=f"v{version}")
                )
        return language_pb2.GetRequiredPackagesResponse(packages=packages)

    def About(  # noqa: N802
        self, request: language_pb2.AboutRequest, context: grpc.ServicerContext
    ) -> language_pb2.AboutResponse:
        """Name the interpreter, for `pulumi about`."""
        interpreter = _find_or_abort(request.info, context)
        return language_pb2.AboutResponse(executable=str(interpreter.python), version=interpreter.version())

    def GetProgramDependencies(  # noqa: N802
        self, request: language_pb2.GetProgramDependenciesRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetProgramDependenciesResponse:
        """List the project's packages, for `pulumi about`."""
        packages = _find_or_abort(request.info, context).packages(transitive=request.transitiveDependencies)
        listed = [language_pb2.DependencyInfo(name=name, version=packages[name]) for name in sorted(packages)]
        return language_pb2.GetProgramDependenciesResponse(dependencies=listed)

    def InstallDependencies(  # noqa: N802
        self, request: language_pb2.InstallDependenciesRequest, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.InstallDependenciesResponse]:
        """Create the virtual environment that the project names, and install its requirements.txt."""
        folder = Path(request.info.program_directory)
        option = dict(request.info.options.items()).get("virtualenv")
        if (
            option is not None
            and not (Path(request.info.root_directory) / str(option) / "bin" / "python").exists()
        ):
            venv = str(Path(request.info.root_directory) / str(option))
            yield from self._install(["python3", "-m", "venv", venv], folder, context)
        requirements = folder / "requirements.txt"
        if requirements.is_file():
            python = str(_find_or_abort(request.info, context).python)
            yield from self._install(
                [python, "-m", "pip", "install", "-r", str(requirements)], folder, context
            )

    def Cancel(  # noqa: N802
        self, _request: empty_pb2.Empty, _context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        """Ask the running programs to stop."""
        self._children.interrupt()
        return empty_pb2.Empty()

    def GetRequiredPlugins(  # noqa: N802
        self, _request: language_pb2.GetRequiredPluginsRequest, _context: grpc.ServicerContext
    ) -> language_pb2.GetRequiredPluginsResponse:
        """What an older engine asks instead of GetRequiredPackages."""
        return language_pb2.GetRequiredPluginsResponse()

    def RuntimeOptionsPrompts(  # noqa: N802
        self, _request: language_pb2.RuntimeOptionsRequest, _context: grpc.ServicerContext
    ) -> language_pb2.RuntimeOptionsResponse:
        """Nothing to ask in `pulumi new`."""
        return language_pb2.RuntimeOptionsResponse()

    def Template(  # noqa: N802
        self, _request: language_pb2.TemplateRequest, _context: grpc.ServicerContext
    ) -> language_pb2.TemplateResponse:
        """Nothing to change in a new project."""
        return language_pb2.TemplateResponse()

    def GenerateProgram(self, _request: Message, context: grpc.ServicerContext) -> NoReturn:  # noqa: N802
        """Not offered."""
        _generates_no_code(context)

    def GenerateProject(self, _request: Message, context: grpc.ServicerContext) -> NoReturn:  # noqa: N802
        """Not offered."""
        _generates_no_code(context)

    def GeneratePackage(self, _request: Message, context: grpc.ServicerContext) -> NoReturn:  # noqa: N802
        """Not offered."""
        _generates_no_code(context)

    def Pack(self, _request: Message, context: grpc.ServicerContext) -> NoReturn:  # noqa: N802
        """Not offered."""
        _generates_no_code(context)

    def Link(self, _request: Message, context: grpc.ServicerContext) -> NoReturn:  # noqa: N802
        """Not offered."""
        _generates_no_code(context)

    def _description(self, request: language_pb2.RunRequest) -> dict[str, object]:
        """What run_program.py needs; config goes by the environment, since all users can see arguments."""
        return {
            "monitor": request.monitor_address,
            "engine": self._engine,
            "project": request.project,
            "stack": request.stack,
            "parallel": request.parallel,
            "dry_run": request.dryRun,
            "organization": request.organization,
            "root_directory": request.info.root_directory,
            "program": str(Path(request.info.program_directory) / request.info.entry_point),
            "args": list(request.args),
        }

    def _install(
        self, command: list[str], folder: Path, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.InstallDependenciesResponse]:
        with self._children.start(command, cwd=str(folder), env=os.environ, captured=True) as process:
            for stream, chunk in _output(process.stdout, process.stderr):
                if stream == "stdout":
                    yield language_pb2.InstallDependenciesResponse(stdout=chunk)
                else:
                    yield language_pb2.InstallDependenciesResponse(stderr=chunk)
            if (code := process.wait()) != 0:
                context.abort(
                    grpc.StatusCode.FAILED_PRECONDITION, f"{' '.join(command)} exited with code {code}"
                )


def _find_or_abort(info: language_pb2.ProgramInfo, context: grpc.ServicerContext) -> Interpreter:
    try:
        return find(info)
    except InterpreterError as error:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        raise


def _generates_no_code(context: grpc.ServicerContext) -> NoReturn:
    message = (
        "the rebuilt language host runs programs and generates no code; use Pulumi's own release for that"
    )
    context.abort(grpc.StatusCode.UNIMPLEMENTED, message)
    raise AssertionError(message)


def _output(stdout: IO[bytes] | None, stderr: IO[bytes] | None) -> Iterator[tuple[str, bytes]]:
    """What a process prints, as it comes: ("stdout" or "stderr", bytes)."""
    chunks: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()

    def pump(name: str, pipe: IO[bytes]) -> None:
        with pipe:
            while chunk := pipe.read(65536):
                chunks.put((name, chunk))
        chunks.put((name, b""))

    pipes = {name: pipe for name, pipe in (("stdout", stdout), ("stderr", stderr)) if pipe is not None}
    for name, pipe in pipes.items():
        threading.Thread(target=pump, args=(name, pipe), daemon=True).start()
    open_pipes = len(pipes)
    while open_pipes:
        name, chunk = chunks.get()
        if chunk:
            yield name, chunk
        else:
            open_pipes -= 1
