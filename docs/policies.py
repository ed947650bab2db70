"""What is written from the policy pack's rules: docs/policies.md and policies/config/*.json."""

import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
# The pack is run from its own folder and imports from there.
sys.path.append(str(PROJECT / "policies"))

from pack.describe import config, rules_page  # noqa: E402
from pack.rule import ENVIRONMENTS  # noqa: E402

_INTRODUCTION = """# The policy pack

Written by `python -m docs.generate` from `policies/rules/`: edit that, not this file.

The pack in `policies/` judges what a stack deploys, whoever wrote it: this program, another one, a resource
that was edited or imported. It is the last line; the settings refuse the same mistakes earlier, and with a
better message.

    make preview STACK=prod       # with the pack, at the levels of the stack's environment
    make up STACK=prod

`make up` previews first wherever Pulumi asks before it goes on: a rule about a whole stack then stops it
before anything is made.

With plain Pulumi, say it once in the shell (or in the CI job), and every `preview` and `up` there meets the
pack:

    make policy-env     # once, and after the pack's requirements changed; or: cd policies && pulumi install
    export PULUMI_OPTION_POLICY_PACK=policies PULUMI_OPTION_POLICY_PACK_CONFIG=policies/config/prod.json
    pulumi up -s prod

Both are paths, relative to the folder in which `pulumi` is typed; several packs are separated by commas,
with a configuration each. Without a configuration every rule has its level of prod.

Other programs: `make policy-pack` writes a copy that needs nothing else of this repository to
`.local/policy-pack`; hand it to Pulumi with `--policy-pack <folder> --policy-pack-config
<folder>/config/prod.json`.

A value that is not known before its resource exists is refused where a rule must know it (GPU, memory,
ports): give it in plain text.

"""


def policy_files() -> dict[Path, str]:
    """Every file, with its text."""
    configs = {
        PROJECT / "policies" / "config" / f"{environment}.json": config(environment)
        for environment in ENVIRONMENTS
    }
    return {PROJECT / "docs" / "policies.md": _INTRODUCTION + rules_page(), **configs}
