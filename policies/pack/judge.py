"""Runs rules over resources: what the policy engine does, and the audit without it."""

from collections.abc import Iterable, Iterator

from pack.resource import Resource
from pack.rule import Finding, Params, Rule
from pack.stack import Stack, matters


def judge(rule: Rule, stack: Stack, params: Params) -> Iterator[Finding]:
    """What a rule finds, each once; a defect of the rule is a violation too, and stops no other rule."""
    told: set[tuple[str, str]] = set()
    try:
        for finding in rule.check(stack, params):
            key = (finding.resource.urn, finding.what)
            if key not in told:  # of what is unknown as a whole every part is asked for
                told.add(key)
                yield finding
    except Exception as error:  # noqa: BLE001 - whatever a rule did not expect must not let a resource pass
        resource = stack.resources[0]
        yield Finding(
            resource=resource,
            what=f"{rule.name} could not judge {resource.name}: {type(error).__name__}: {error}",
            fix="this is a defect of the rule, not of the resource: report it, with the resource",
        )


def judge_all(rule: Rule, resources: Iterable[Resource], params: Params) -> Iterator[Finding]:
    """What a rule finds in all resources, seen one by one or together, as its scope has it."""
    seen = tuple(resource for resource in resources if matters(resource.type))
    if rule.scope == "stack":
        if seen:
            yield from judge(rule, Stack(resources=seen), params)
        return
    for resource in seen:
        yield from judge(rule, Stack(resources=(resource,)), params)
