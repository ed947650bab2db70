"""What `make mutate-policies` takes out of a rule, and that it notices who notices."""

import ast

from tests.mutation.mutants import mutants
from tests.mutation.run import own_tests, rule_files

SOURCE = """
LIMIT = 5 if True else 6


def check(values):
    for value in (one for one in values if one.ok):
        if value.a and not value.b > 3:
            yield value
    return len(values) == 2
"""


def test_each_condition_and_each_finding_is_taken_out_once() -> None:
    found = [(mutant.before, mutant.after) for mutant in mutants(SOURCE)]
    assert found == [
        ("for one in values if one.ok", "for one in values"),
        ("if value.a and (not value.b > 3)", "if True"),
        ("if value.a and (not value.b > 3)", "if False"),
        ("value.a and (not value.b > 3)", "not value.b > 3"),
        ("value.a and (not value.b > 3)", "value.a"),
        ("not value.b > 3", "value.b > 3"),
        ("value.b > 3", "value.b >= 3"),
        ("value.b > 3", "True"),
        ("value.b > 3", "False"),
        ("(yield value)", "(yield from ())"),
        ("len(values) == 2", "True"),
        ("len(values) == 2", "False"),
    ]


def test_a_mutant_differs_from_the_rule_in_that_place_alone() -> None:
    before = ast.unparse(ast.parse(SOURCE)).splitlines()
    for mutant in mutants(SOURCE):
        after = ast.unparse(mutant.tree).splitlines()
        assert sum(one != other for one, other in zip(before, after, strict=True)) == 1, str(mutant)


def test_every_rule_has_tests_of_its_own() -> None:
    assert [name for name in rule_files() if not own_tests(name).exists()] == []
