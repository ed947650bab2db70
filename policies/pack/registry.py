"""Finds the rules: every module of the folder rules/ lists its own."""

import importlib
import pkgutil
from functools import cache

import rules

from pack.rule import Rule


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule of the pack, by the name of its file."""
    names = sorted(module.name for module in pkgutil.iter_modules(rules.__path__))
    modules = [importlib.import_module(f"rules.{name}") for name in names]
    return tuple(rule for module in modules for rule in module.RULES)
