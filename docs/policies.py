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
that was edited or imported. It is the last line: the settings refuse the same mistakes earlier, and in prod
all of them that a setting can make, with or without the pack.

    make preview STACK=prod       # with the pack, at the levels of the stack's environment
    make up STACK=prod

`make up` previews first wherever Pulumi asks before it goes on: a rule about a whole stack then stops it
before anything is made. The local stack is judged in `make pr-check` alone: `make up` of a simulation on this
machine does not wait for the pack to start.

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

## What is deployed, and other manifests

    make policy-audit STACK=prod                    # what the stack's state says is deployed
    make policy-audit MANIFESTS=rendered/           # Kubernetes YAML or JSON that any program made
    make policy-audit MANIFESTS=rendered/ ARGS="--environment staging --config levels.json --json"

The same rules over plain data, without Pulumi's policy engine, and without reaching any host. Each violation
is a row: rule, level, resource, value, fix. Exit code of the audit: 0 where no mandatory rule is broken, 1
where one is, 2 where nothing could be judged (no YAML, an empty folder, nothing deployed); `make` itself
fails with 2 for either, and prints which. A stack is judged at the levels of its environment, manifests at
those of prod; `--config` takes a file for `--policy-pack-config`.

Manifests are files of one or many documents, Lists too, in a folder and below it. Render templates first
(`helm template`, `kustomize build`). Secrets of a state stay encrypted: a rule that would have to know one
says that it cannot read it. A state does not keep the option `deleteBeforeReplace`, and is not asked for it.

Without this checkout: `PYTHONPATH=<copy of the pack> python -m audit manifests rendered/` in an environment
with the pack's requirements.txt, or `pulumi stack export | python -m audit --environment prod state`.

## In a preview

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
