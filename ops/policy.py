"""The policy pack: its environment, how a stack meets it, and a copy of it for other programs.

`options` can be called without the virtual environment, in which it has the stack file read
(`.venv/bin/python -m ops.policy STACK`).
"""

import os
import shutil
import sys
from pathlib import Path

from ops import paths, venv
from toolchain import python_env

PACK = paths.ROOT / "policies"
_COPY = paths.LOCAL / "policy-pack"
_NOT_COPIED = shutil.ignore_patterns(".venv", "__pycache__", "*.pyc")


def options(stack: str) -> list[str]:
    """What `pulumi up` and `preview` of a stack need to meet the pack, at the levels of its environment.

    Packs that the shell names (PULUMI_OPTION_POLICY_PACK) stay: options of ours alone would replace them.
    """
    python_env.ensure_policy_venv()
    environment = environment_of(stack)
    packs, configs = _of_the_shell("PACK"), _of_the_shell("PACK_CONFIG")
    if str(PACK) not in [str(Path(pack).resolve()) for pack in packs] and len(configs) in (0, len(packs)):
        configs = [
            *(configs or ["/dev/null"] * len(packs)),
            str(PACK / "config" / f"{environment}.json"),
        ]
        packs = [*packs, str(PACK)]
    return [
        *(f"--policy-pack={pack}" for pack in packs),
        *(f"--policy-pack-config={config}" for config in configs),
    ]


def environment_of(stack: str) -> str:
    """The environment that a stack file names; `.venv` must be there. Raises UserError with its problems."""
    return venv.printed("ops.policy", stack).strip()


def _of_the_shell(name: str) -> list[str]:
    return [part for part in os.environ.get(f"PULUMI_OPTION_POLICY_{name}", "").split(",") if part]


def make_environment() -> int:
    """`make policy-env`: what plain Pulumi needs to run the pack."""
    print(f"ready: {python_env.ensure_policy_venv()}")
    return 0


def make_copy() -> int:
    """`make policy-pack`: the pack as a folder that needs nothing else of this checkout."""
    shutil.rmtree(_COPY, ignore_errors=True)
    shutil.copytree(PACK, _COPY, ignore=_NOT_COPIED)
    (_COPY / "data").mkdir()
    shutil.copy(paths.ROOT / "components" / "data" / "facts.yaml", _COPY / "data")
    print(f"{_COPY}: hand it to Pulumi as --policy-pack, with a file of its config/ as --policy-pack-config")
    return 0


def main(stack: str) -> int:
    """Print the environment of a stack file."""
    from components.errors import SettingsError
    from components.stack_file import load_stack_file

    try:
        print(load_stack_file(paths.stack_file(stack)).environment)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
