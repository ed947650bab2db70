"""Copies of a rule's file, each with one condition, or one finding, taken out of its functions."""

import ast
import copy
from collections.abc import Iterator, Set
from dataclasses import dataclass

_BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """What was changed, on which line, and the file as it is then."""

    line: int
    before: str
    after: str
    tree: ast.Module

    def __str__(self) -> str:
        return f"line {self.line}: `{self.before}` -> `{self.after}`"


def mutants(source: str) -> list[Mutant]:
    """Every mutant of a file, in the order of its lines. Constants and `RULES` are left alone."""
    tree = ast.parse(source)
    seen = {ast.unparse(tree)}
    parts = set(_parts_of_conditions(tree))
    found = []
    lines = _lines_of_functions(tree)
    for position, node in enumerate(ast.walk(tree)):
        for new in _instead(node, parts) if _line(node) in lines else ():
            changed = ast.fix_missing_locations(_Replace(position, new).of(tree))
            text = ast.unparse(changed)
            if text not in seen:  # `if a < b` without its test, and without its comparison
                seen.add(text)
                found.append(
                    Mutant(line=_line(node) or 0, before=_shown(node), after=_shown(new), tree=changed)
                )
    return sorted(found, key=lambda mutant: mutant.line)


def _instead(node: ast.AST, parts: Set[ast.AST]) -> Iterator[ast.AST]:
    """What may stand in a node's place."""
    match node:
        case ast.If() | ast.IfExp():
            for value in (True, False):
                new = copy.copy(node)
                new.test = ast.Constant(value)
                yield new
        case ast.comprehension(ifs=[_, *_]):
            for number in range(len(node.ifs)):
                new_loop = copy.copy(node)
                new_loop.ifs = [test for place, test in enumerate(node.ifs) if place != number]
                yield new_loop
        case ast.BoolOp():
            yield from _operands(node)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.Compare():
            yield from _comparisons(node, decided=node in parts)
        case ast.Expr(value=ast.Yield() | ast.YieldFrom()):
            yield ast.Expr(ast.YieldFrom(ast.Tuple([], ast.Load())))
        case _:
            return


def _parts_of_conditions(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes that are taken out, or decided, with what they are a part of."""
    for node in ast.walk(tree):
        match node:
            case ast.If(test=test) | ast.IfExp(test=test):
                yield test
            case ast.BoolOp(values=values):
                yield from values
            case ast.comprehension(ifs=tests):
                yield from tests


def _operands(node: ast.BoolOp) -> Iterator[ast.AST]:
    """Each operand taken out; a constant after `or` is a default, and no condition."""
    for number, operand in enumerate(node.values):
        if isinstance(node.op, ast.Or) and isinstance(operand, ast.Constant):
            continue
        left = [value for place, value in enumerate(node.values) if place != number]
        yield left[0] if len(left) == 1 else ast.BoolOp(node.op, left)


def _comparisons(node: ast.Compare, *, decided: bool) -> Iterator[ast.AST]:
    for number, operator in enumerate(node.ops):
        if type(operator) in _BOUNDARY:
            operators = list(node.ops)
            operators[number] = _BOUNDARY[type(operator)]()
            yield ast.Compare(node.left, operators, node.comparators)
    for value in () if decided else (True, False):
        yield ast.Constant(value)


def _lines_of_functions(tree: ast.Module) -> Set[int | None]:
    functions = (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef))
    return {line for one in functions for line in range(one.lineno + 1, (one.end_lineno or 0) + 1)}


def _line(node: ast.AST) -> int | None:
    return getattr(node.iter if isinstance(node, ast.comprehension) else node, "lineno", None)


class _Replace(ast.NodeTransformer):
    """Replaces the node at one place of `ast.walk`, in a copy."""

    def __init__(self, position: int, new: ast.AST) -> None:
        self._position = position
        self._new = new
        self._target: ast.AST | None = None

    def of(self, tree: ast.Module) -> ast.Module:
        """The copy."""
        copied = copy.deepcopy(tree)
        self._target = next(
            node for position, node in enumerate(ast.walk(copied)) if position == self._position
        )
        done = self.visit(copied)
        assert isinstance(done, ast.Module)
        return done

    def visit(self, node: ast.AST) -> ast.AST:
        """The node, or what stands in its place."""
        if node is self._target:
            return copy.deepcopy(self._new)
        done: ast.AST = self.generic_visit(node)
        return done


def _shown(node: ast.AST) -> str:
    """One line of it: of an `if` the condition alone."""
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}"
    if isinstance(node, ast.comprehension):
        return ast.unparse(node).strip()
    text = ast.unparse(node) if not isinstance(node, ast.Expr) else ast.unparse(node.value)
    return " ".join(text.split())[:160]
