"""A cell's step on tensors, in PyTorch's operations, which differentiate it as often as is asked for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any

import sympy
import torch

from bppsa_cupy.cells.definition import Definition
from bppsa_cupy.cells.symbolic import Expression, Magnitude, Sigmoid
from bppsa_cupy.cells.trace import trace

#: (x, u, states, parameters), each a sequence of tensors that broadcast -> the new states.
Step = Callable[..., list[torch.Tensor]]

_FUNCTIONS: dict[Any, Callable[..., torch.Tensor]] = {
    sympy.Add: lambda *terms: reduce(torch.add, terms),
    sympy.Mul: lambda *factors: reduce(torch.mul, factors),
    sympy.tanh: torch.tanh,
    Sigmoid: torch.sigmoid,
    sympy.exp: torch.exp,
    sympy.log: torch.log,
    sympy.sin: torch.sin,
    sympy.cos: torch.cos,
    Magnitude: torch.abs,
    sympy.Gt: operator.gt,
    sympy.Ge: operator.ge,
    sympy.Lt: operator.lt,
    sympy.Le: operator.le,
    sympy.Eq: operator.eq,
    sympy.Ne: operator.ne,
    sympy.And: lambda *conditions: reduce(torch.logical_and, conditions),
    sympy.Or: lambda *conditions: reduce(torch.logical_or, conditions),
    sympy.Not: torch.logical_not,
}

Known = dict[Expression, torch.Tensor]


@cache
def step_of(definition: Definition) -> Step:
    """The step of a cell. Its derivatives at kinks are those of the kernels: Max(x, 0) has 0 at 0."""
    traced = trace(definition)
    symbols = (*traced.x, *traced.u, *traced.before, *traced.p)

    def step(*groups: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        known: Known = dict(zip(symbols, [tensor for group in groups for tensor in group], strict=True))
        return [_value(expression, known) for expression in traced.after]

    return step


def _value(expression: Expression, known: Known) -> torch.Tensor:
    """The value of an expression of symbols in `known`, which takes up what it contains."""
    if expression not in known:
        known[expression] = _computed(expression, known)
    return known[expression]


def _computed(expression: Expression, known: Known) -> torch.Tensor:
    if expression.is_number:
        like = next(iter(known.values()))
        return torch.tensor(float(expression), dtype=like.dtype, device=like.device)
    if isinstance(expression, sympy.Max | sympy.Min):
        *others, last = sorted(
            expression.args, key=lambda part: (part.is_number, sympy.default_sort_key(part))
        )
        first = expression.func(*others)
        is_first = operator.gt if isinstance(expression, sympy.Max) else operator.lt
        return _chosen(is_first(_value(first, known), _value(last, known)), first, last, known)
    if isinstance(expression, sympy.Piecewise):
        (first, condition), *rest = expression.args
        if condition == True:  # noqa: E712
            return _value(first, known)
        return _chosen(_value(condition, known), first, sympy.Piecewise(*rest), known)
    if expression.is_Pow and expression.exp.is_number:
        exponent = int(expression.exp) if expression.exp.is_Integer else float(expression.exp)
        return _value(expression.base, known) ** exponent
    if expression.is_Pow:
        return torch.pow(*(_value(part, known) for part in expression.args))
    return _FUNCTIONS[expression.func](*(_value(part, known) for part in expression.args))


def _chosen(condition: torch.Tensor, first: Expression, second: Expression, known: Known) -> torch.Tensor:
    """`first` where the condition holds, else `second`; what is not chosen has no part in a derivative, be
    its own infinite."""
    return torch.where(
        condition, _value(first, _only(condition, known)), _value(second, _only(~condition, known))
    )


def _only(condition: torch.Tensor, known: Known) -> Known:
    """The symbols' values, followed by derivatives where the condition holds alone."""
    return {
        symbol: torch.where(condition, value, value.detach())
        for symbol, value in known.items()
        if symbol.is_Symbol
    }
