"""How strictly rules are taken: as their environment has it, or as a `--policy-pack-config` file says."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pack.registry import all_rules
from pack.rule import Environment, Params, Rule, params_of

from audit.errors import AuditError

_LEVELS = ("mandatory", "advisory", "disabled")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A rule that is asked, at which level, and with which settings."""

    rule: Rule
    level: str
    params: Params


def levels(environment: Environment, config: Path | None) -> Iterator[Judged]:
    """Every rule that is not disabled. Raises AuditError for a configuration that cannot be read."""
    said = _read(config) if config else {}
    known = {rule.name for rule in all_rules()}
    if unknown := sorted(said.keys() - known - {"all"}):
        raise AuditError(
            f"{config}: {unknown[0]}: there is no such rule; there are {', '.join(sorted(known))}"
        )
    for rule in all_rules():
        found = said.get(rule.name, said.get("all", {}))
        own: dict[str, Any] = {"enforcementLevel": found} if isinstance(found, str) else dict(found)
        level = own.pop("enforcementLevel", rule.levels[environment])
        if level not in _LEVELS:
            raise AuditError(f"{config}: {rule.name}: {level}: a level is {', '.join(_LEVELS)}")
        if level != "disabled":
            yield Judged(rule=rule, level=level, params=params_of({"environment": environment, **own}))


def _read(config: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AuditError(f"{config}: is no configuration that can be read: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(one, str | dict) for one in found.values()):
        raise AuditError(f"{config}: is no object with a level, or an object with one, for each rule")
    return found
