"""Faults of Python functions: operators, comparisons, conditions, numbers, statements that are left out.

A fault is made in the syntax tree, so that every line keeps its number. What a message, an annotation, a
default or the body of a class says is left as it is, what only asserts (`assert`, `strict=True`), and what
writes machine code (Numba's intrinsics), which runs where nothing is compiled yet.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mutating.mutant import ROOT, Mutant, numbered

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}
#: Functions that only tell.
TELLING = ("__repr__", "__str__")


def faults_of(path: str, fitted: bool = False) -> list[Mutant]:
    """Every fault of one file, in the order of its text; of one that is `fitted` to measurements none of its
    numbers and of what is added and multiplied."""
    text = Path(ROOT, path).read_text(encoding="utf-8")
    lines = text.splitlines()
    found = []
    for place, node in enumerate(_nodes(ast.parse(text))):
        if fitted and isinstance(node, ast.BinOp | ast.AugAssign | ast.Constant | ast.UnaryOp):
            continue
        for turn, new in enumerate(_variants(node)):
            change = f"{_told(node)} → {_told(new)}"
            line = node.lineno
            found.append(Mutant(path, line, node.end_lineno, lines[line - 1].strip(), change, (place, turn)))
    return numbered(found)


def mutated(mutant: Mutant) -> ast.Module:
    """The syntax tree of a file with one fault in it."""
    tree = ast.parse(Path(ROOT, mutant.path).read_text(encoding="utf-8"))
    place, turn = mutant.place
    old = _nodes(tree)[place]
    new = ast.copy_location(list(_variants(old))[turn], old)
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if value is old:
                setattr(node, name, new)
            elif isinstance(value, list):
                value[:] = [new if one is old else one for one in value]
    return ast.fix_missing_locations(tree)


def _nodes(tree: ast.Module) -> list[Any]:
    """What may be changed: the statements and expressions of every function's body."""
    found: list[Any] = []

    def visit(node: ast.AST, inside: bool) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if any(isinstance(one, ast.Name) and one.id == "intrinsic" for one in node.decorator_list):
                return
            for statement in node.body if node.name not in TELLING else ():
                visit(statement, True)
            return
        if isinstance(node, (ast.JoinedStr, ast.Assert)) or (
            isinstance(node, ast.keyword) and node.arg == "strict"
        ):
            return
        if inside and isinstance(node, (ast.expr, ast.stmt)):
            found.append(node)
        if isinstance(node, ast.Raise):
            return
        for name, value in ast.iter_fields(node):
            if name != "annotation":
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        visit(child, inside)

    visit(tree, False)
    return found


def _variants(node: Any) -> Iterator[Any]:
    """What may stand in a node's place."""
    match node:
        case ast.Compare():
            for turn, operator in enumerate(node.ops):
                operators = list(node.ops)
                operators[turn] = COMPARISONS[type(operator)]()
                yield ast.Compare(node.left, operators, node.comparators)
        case ast.BinOp() if type(node.op) in OPERATORS:
            yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
        case ast.AugAssign() if type(node.op) in OPERATORS:
            yield ast.AugAssign(node.target, OPERATORS[type(node.op)](), node.value)
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int()):
            yield ast.Constant(node.value + 1)
        case ast.Constant(value=float()):
            yield ast.Constant(2 * node.value or 1.0)
        case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.UnaryOp | ast.Compare):
            new = copy.copy(node)
            new.test = ast.UnaryOp(ast.Not(), test)
            yield new
        case ast.Call(func=ast.Name(id=name)) if name in NAMES:
            yield ast.Call(ast.Name(NAMES[name], ast.Load()), node.args, node.keywords)
        case ast.Call(func=ast.Attribute(attr=name)) if name in NAMES:
            function = ast.Attribute(node.func.value, NAMES[name], ast.Load())
            yield ast.Call(function, node.args, node.keywords)
        case ast.Expr(value=ast.Call()) | ast.Raise():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()


def _told(node: Any) -> str:
    """A node in few words: of a statement with a body its first line."""
    node = ast.fix_missing_locations(ast.copy_location(copy.copy(node), ast.Pass(lineno=1, col_offset=0)))
    return ast.unparse(node).partition("\n")[0].removesuffix(":")
