"""What `make mutate-policies` takes out of a rule, and that it notices who notices."""

import ast

from tests.mutation.mutants import mutants
from tests.mutation.run import own_tests, rule_files, verdicts

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


FOR_EVER = """
import signal

signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
found = []
while True:
    {step}
"""


def test_a_mutant_without_an_end_is_killed_whatever_signals_it_holds_back() -> None:
    [verdict] = verdicts("required_labels", [ast.parse(FOR_EVER.format(step="pass"))], 1, longest_s=0.5)
    assert verdict == (0, "too long")


def test_a_mutant_that_fills_the_memory_fails_before_the_machine_does() -> None:
    tree = ast.parse(FOR_EVER.format(step="found.append(bytes(2**24))"))
    [verdict] = verdicts("required_labels", [tree], 1)
    assert verdict == (0, "caught")


def test_every_rule_has_tests_of_its_own() -> None:
    assert [name for name in rule_files() if not own_tests(name).exists()] == []
