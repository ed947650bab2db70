"""`python -m audit`, in the pack's folder and environment: judges without Pulumi.

    python -m audit --environment prod state < exported.json
    python -m audit --environment prod manifests <folder or file>

Exit code: 0 where no mandatory rule is broken, 1 where one is, 2 where nothing could be judged.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pack.resource import Resource
from pack.rule import ENVIRONMENTS
from pack.stack import matters

from audit.errors import AuditError
from audit.levels import levels
from audit.manifests import resources_of_folder
from audit.report import as_json, as_table, rows
from audit.state import resources_of_state


def main(arguments: Sequence[str]) -> int:
    """Judge, print, and say by the exit code what came of it."""
    options = _parser().parse_args(arguments)
    try:
        resources = _resources(options)
        judged = tuple(levels(options.environment, options.config))
        found = rows(resources, judged)
    except AuditError as error:
        print(f"policy-audit: {error}", file=sys.stderr)
        return 2
    mandatory = sum(row.level == "mandatory" for row in found)
    if options.json:
        print(as_json(found))
    else:
        for line in as_table(found) if found else ():
            print(line)
        looked = sum(matters(resource.type) for resource in resources)
        print(
            f"{looked} of {len(resources)} resources judged by {len(judged)} rules at the levels of "
            f"{options.environment}: {mandatory} mandatory violations, {len(found) - mandatory} advisory."
        )
    return 1 if mandatory else 0


def _resources(options: argparse.Namespace) -> tuple[Resource, ...]:
    if options.source == "manifests":
        return resources_of_folder(options.path)
    found = resources_of_state(sys.stdin.read())
    if not found:
        raise AuditError("nothing is deployed: there is no resource in the state")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="policy-audit", description="The pack's rules, without Pulumi.")
    parser.add_argument("--environment", choices=ENVIRONMENTS, default="prod")
    parser.add_argument("--config", type=Path, help="levels, as for Pulumi's --policy-pack-config")
    parser.add_argument("--json", action="store_true", help="a list of violations for programs")
    sources = parser.add_subparsers(dest="source", required=True)
    sources.add_parser("state", help="what `pulumi stack export` prints, on standard input")
    sources.add_parser("manifests", help="rendered Kubernetes YAML").add_argument("path", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
