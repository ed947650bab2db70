"""Route 3: Pulumi and its plugins from package registries, by an ordinary `go build` of modules by name."""

import json
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from toolchain.cache import build_once, content_key, folder_content, locked, published
from toolchain.golang import COMPILE, compile_packages, go_binary, go_env
from toolchain.process import run
from toolchain.progress import step
from toolchain.python_env import ensure_venv, pip
from toolchain.tools import REBUILT_MARK, Toolchain, own_environment, own_home
from toolchain.versions import GO_MODULES, LOCK, REPOSITORY, versions

LANGUAGE_HOST = REPOSITORY / "toolchain" / "language_host"
CLI = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
CLI_VERSION_VARIABLE = "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"
# What the language host doesn't import is left out of its environment.
NOT_FOR_HOST = ("pulumi-docker", "pulumi-kubernetes", "pydantic", "pydantic-core")


@dataclass(frozen=True, kw_only=True)
class GoBuild:
    """One `go build` with the executables that come out of it."""

    module: str
    version: str
    title: str
    usual: str

    @property
    def key(self) -> str:
        """Changes with our sources, the modules' versions, and the versions that the linker writes."""
        content = folder_content(GO_MODULES / self.module)
        return content_key(self.version, content, json.dumps(versions().plugins).encode(), *COMPILE)


@cache
def engine_build() -> GoBuild:
    """The CLI and the Docker plugin: one module, since most of their dependencies are the same."""
    version = versions().rebuilt_pulumi
    title = f"Build the Pulumi CLI v{version} and its Docker plugin from Go modules"
    return GoBuild(module="engine", version=version, title=title, usual="5 to 8 min on 2 cores")


@cache
def kubernetes_build() -> GoBuild:
    """The Kubernetes plugin: in a module of its own, since it compiles only with an older engine."""
    version = versions().plugins["kubernetes"]
    title = f"Build Pulumi's Kubernetes plugin v{version} from Go modules"
    return GoBuild(module="kubernetes", version=version, title=title, usual="4 to 12 min on 2 cores")


def plugin_build(name: str) -> GoBuild:
    """The build that a plugin comes from."""
    return {"docker": engine_build, "kubernetes": kubernetes_build}[name]()


def find(plugins: Sequence[str]) -> Toolchain | None:
    """The rebuilt CLI with these plugins if all of it was built before, or None."""
    wanted = [engine_build(), *(plugin_build(name) for name in plugins)]
    if any(published(build.module, build.key) is None for build in wanted):
        return None
    if published("language-host", _host_key()) is None or published("pulumi", _tools_key()) is None:
        return None
    return get(plugins)


def get(plugins: Sequence[str]) -> Toolchain:
    """Build what is not there yet, and install the plugins where the CLI looks for them."""
    folder = build_once("pulumi", _tools_key(), _assemble)
    tools = Toolchain(
        pulumi=folder / "bin" / "pulumi",
        version=versions().rebuilt_pulumi + REBUILT_MARK,
        origin="rebuilt",
        # Without it the CLI would try to download a plugin that was not asked for, and wait for an answer.
        env={**own_environment(folder / "bin"), "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true"},
    )
    for name in plugins:
        _install_plugin(tools, name)
    return tools


def _assemble(folder: Path) -> None:
    """Put the CLI and the language host side by side: that is where the CLI looks first."""
    executables = folder / "bin"
    executables.mkdir()
    # A hard link: through a symbolic link the CLI would look for the language host beside the link's target.
    os.link(_built(engine_build()) / "pulumi", executables / "pulumi")
    host = build_once("language-host", _host_key(), _build_language_host)
    launcher = executables / "pulumi-language-python"
    python = f"../../../language-host/{host.name}/bin/python"
    launcher.write_text(f'#!/bin/sh\nexec "${{0%/*}}/{python}" -I -m language_host "$@"\n')
    launcher.chmod(0o755)


def _built(build: GoBuild) -> Path:
    key = build.key
    if folder := published(build.module, key):
        return folder
    go = go_binary()
    with step(build.title, build.usual):
        return build_once(build.module, key, lambda target: _go_build(go, build, target))


def _go_build(go: Path, build: GoBuild, target: Path) -> None:
    source = target / "source"
    shutil.copytree(GO_MODULES / build.module, source)
    if build == kubernetes_build():
        _copy_kubernetes_schema(go, source)
        plugin = versions().plugins["kubernetes"]
        compile_packages(go, source, target, [f"main.version={plugin}"], ["."])
    else:
        plugin = versions().plugins["docker"]
        variables = [
            f"{CLI_VERSION_VARIABLE}=v{versions().rebuilt_pulumi}{REBUILT_MARK}",
            f"main.version={plugin}",
        ]
        compile_packages(go, source, target, variables, ["./cmd/pulumi-resource-docker", CLI])
    shutil.rmtree(source)


def _copy_kubernetes_schema(go: Path, source: Path) -> None:
    module = "github.com/pulumi/pulumi-kubernetes/provider/v4"
    run([go, "mod", "download", module], what=f"get {module}", env=go_env(), cwd=source)
    shown = run([go, "list", "-m", "-f", "{{.Dir}}", module], what=f"find {module}", env=go_env(), cwd=source)
    published_files = Path(shown.strip()) / "cmd" / "pulumi-resource-kubernetes"
    schema = json.loads((published_files / "schema.json").read_text())
    schema["version"] = versions().plugins["kubernetes"]
    (source / "schema.json").write_text(json.dumps(schema))
    shutil.copyfile(published_files / "terraform-mapping.json", source / "terraform-mapping.json")


def _build_language_host(folder: Path) -> None:
    """An interpreter with grpc and Pulumi's protocols of its own, so that the host depends on no checkout."""
    project_python = ensure_venv()
    with step("Install the Python language host", "10 s"):
        run(
            [project_python, "-m", "venv", "--without-pip", folder],
            what="create the language host's environment",
        )
        lock = folder / "requirements.txt"
        lock.write_text(_without(LOCK.read_text(), NOT_FOR_HOST))
        into = ["--python", str(folder / "bin" / "python")]
        install = pip(project_python, *into, "install", "--no-deps", "--require-hashes", "-r", lock)
        run(install, what="install the language host's packages")
        [packages] = folder.glob("lib/python*/site-packages")
        shutil.copytree(
            LANGUAGE_HOST, packages / "language_host", ignore=shutil.ignore_patterns("__pycache__")
        )


def _without(lock: str, names: Sequence[str]) -> str:
    kept: list[str] = []
    keep = True
    for line in lock.splitlines():
        if not line.startswith((" ", "#")):
            keep = line.partition("==")[0] not in names
        if keep:
            kept.append(line)
    return "\n".join(kept) + "\n"


def _install_plugin(tools: Toolchain, name: str) -> None:
    """Install a plugin into our PULUMI_HOME, unless that very build is there already."""
    build = plugin_build(name)
    home, version = own_home(), versions().plugins[name]
    stamp = home / f".{name}-plugin"
    installed = home / "plugins" / f"resource-{name}-v{version}" / f"pulumi-resource-{name}"
    if installed.is_file() and stamp.is_file() and stamp.read_text() == build.key:
        return
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(stat.S_IRWXU)  # `pulumi login` keeps its tokens here
    executable = _built(build) / f"pulumi-resource-{name}"
    with locked(home.parent / "pulumi-home.lock", waiting_for="another run that installs plugins"):
        command: list[str | Path] = [
            tools.pulumi,
            "plugin",
            "install",
            "resource",
            name,
            version,
            "--file",
            executable,
            "--reinstall",
        ]
        env = {**os.environ, **tools.env}
        run([*command, "--non-interactive"], what=f"install the {name} plugin", env=env)
        stamp.write_text(build.key)


def _host_key() -> str:
    sources = sorted(LANGUAGE_HOST.rglob("*.py"))
    content = b"".join(file.read_bytes() for file in sources)
    base = ensure_venv().resolve()  # the interpreter that the host's environment will lean on
    return content_key("host", LOCK.read_bytes(), content, str(base), *NOT_FOR_HOST)


def _tools_key() -> str:
    return content_key(versions().rebuilt_pulumi, engine_build().key, _host_key())
