"""`python3 -m toolchain setup | env | versions | where`."""

import argparse
import os
import shlex
import sys

from toolchain import pulumi
from toolchain.cache import cache_root
from toolchain.errors import ToolchainError
from toolchain.python_env import ensure_venv
from toolchain.tools import Toolchain
from toolchain.versions import versions

COMMANDS = {
    "setup": "make what `make up` needs: the virtual environment, Pulumi and its plugins",
    "env": 'print what a shell needs for plain `pulumi ...`: eval "$(python3 -m toolchain env)"',
    "versions": "print the versions that this checkout uses",
    "where": "print where everything lies",
}


def main() -> int:
    """Run one command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m toolchain", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name != "versions":
            command.add_argument("--kubernetes", action="store_true", help="with the Kubernetes plugin too")
        if name == "setup":
            command.add_argument("--dev", action="store_true", help="with the tools for checks and tests too")
    arguments = parser.parse_args()
    try:
        if arguments.command == "versions":
            _print_versions()
            return 0
        ensure_venv(dev=arguments.command == "setup" and arguments.dev)
        plugins = ["docker", "kubernetes"] if arguments.kubernetes else ["docker"]
        tools = pulumi.ensure(plugins=plugins)
    except ToolchainError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("stopped; what was compiled so far is kept\n")
        return 130
    if arguments.command == "env":
        _print_exports(tools)
    elif arguments.command == "where":
        _print_places(tools)
    else:
        print(f"ready: Pulumi v{tools.version} ({tools.origin}) at {tools.pulumi}")
    return 0


def _print_versions() -> None:
    pinned = versions()
    print(f"pulumi (official, Python SDK) {pinned.pulumi}")
    print(f"pulumi (rebuilt)              {pinned.rebuilt_pulumi}")
    for name, version in pinned.plugins.items():
        print(f"plugin {name:22} {version}")
    print(f"go (to rebuild)               {pinned.minimum_go} or later")


def _print_exports(tools: Toolchain) -> None:
    for name, value in tools.env.items():
        if name == "PATH":
            print(f'export PATH={shlex.quote(str(tools.pulumi.parent))}"{os.pathsep}$PATH"')
        else:
            print(f"export {name}={shlex.quote(value)}")


def _print_places(tools: Toolchain) -> None:
    print(f"pulumi      {tools.pulumi} (v{tools.version}, {tools.origin})")
    print(f"PULUMI_HOME {tools.env.get('PULUMI_HOME', os.environ.get('PULUMI_HOME', '~/.pulumi'))}")
    print(f"python      {ensure_venv()}")
    print(f"cache       {cache_root()}")


if __name__ == "__main__":
    sys.exit(main())
