"""What is written from the rules: the configuration of each environment, and the page about them."""

import json
from collections.abc import Iterator

from pack.registry import all_rules
from pack.rule import ENVIRONMENTS, Environment, Rule

_ABOUT = {
    "resource": "one resource at a time, before it is made",
    "stack": "a whole stack; on `up` after its resources were made, so preview first",
}


def config(environment: Environment) -> str:
    """The file for `--policy-pack-config`: the level of every rule, and which environment it is."""
    levels = {
        rule.name: {"enforcementLevel": rule.levels[environment], "environment": environment}
        for rule in all_rules()
    }
    return json.dumps(levels, indent=2) + "\n"


def rules_page() -> str:
    """docs/policies.md without its introduction."""
    return "\n".join([*_table(), "", *(line for rule in all_rules() for line in _section(rule))])


def _table() -> Iterator[str]:
    yield f"| rule | severity | {' | '.join(ENVIRONMENTS)} |"
    yield f"|---|---|{'---|' * len(ENVIRONMENTS)}"
    for rule in all_rules():
        levels = " | ".join(rule.levels[environment] for environment in ENVIRONMENTS)
        yield f"| [{rule.name}](#{rule.name}) | {rule.severity} | {levels} |"


def _section(rule: Rule) -> Iterator[str]:
    yield from (f"## {rule.name}", "", f"{rule.protects}.", "")
    yield f"- Judges {_ABOUT[rule.scope]}."
    yield f"- Why: {', '.join(f'<{url}>' for url in rule.why)}"
    yield f"- How to fix it: {rule.steps}"
    yield f"- Exempt: {rule.exempt}"
    if rule.schema:
        settings = (f"`{name}` ({schema.get('description', '')})" for name, schema in rule.schema.items())
        yield f"- Settings: {'; '.join(settings)}"
    yield ""
