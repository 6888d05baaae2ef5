"""A recurrent pass in PyTorch's operations, step by step: slow, and differentiable to any order."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any

import sympy
import torch
from torch.nn.functional import linear

from bppsa_cupy.cells.definition import Definition
from bppsa_cupy.cells.definitions import DEFINITIONS
from bppsa_cupy.cells.symbolic import Expression, Magnitude, Sigmoid
from bppsa_cupy.cells.trace import trace
from bppsa_cupy.layers import CellLayer, MatrixRecurrent
from bppsa_cupy.torch.engine_layer import EngineLayer

#: (x, u, states, parameters), each a sequence of tensors that broadcast -> the new states.
Step = Callable[..., list[torch.Tensor]]


def unrolled(
    engine: EngineLayer,
    lengths: torch.Tensor | None,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """Output and last states, as the engine's pass gives them."""
    layer = engine.layer
    step = step_of(
        layer.definition.definition if isinstance(layer, CellLayer) else DEFINITIONS[layer.cell.name]
    )
    y = x.transpose(0, 1) if layer.batch_first else x
    own = len(parameters) // (layer.num_layers * layer.directions)
    after = []
    for number in range(layer.num_layers):
        outputs = []
        for direction in range(layer.directions):
            walk = layer.directions * number + direction
            first = [state[walk] for state in states]
            given = parameters[walk * own : (walk + 1) * own]
            output, last = _walk(layer, step, bool(direction), lengths, y, first, given)
            outputs.append(output)
            after.append(last)
        y = torch.cat(outputs, -1)
    y = y.transpose(0, 1) if layer.batch_first else y
    return (y, *map(torch.stack, zip(*after, strict=True)))


def _walk(
    layer: MatrixRecurrent,
    step: Step,
    is_backwards: bool,
    lengths: torch.Tensor | None,
    x: torch.Tensor,
    first: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
    """The outputs (T, B, H) of one inner layer in one direction over x (T, B, F), and its last states."""
    gates, sums, rest = layer.cell.gates, layer.cell.sums, list(parameters)
    weight_ih = rest.pop(0) if layer.projects else None
    weight_hh = rest.pop(0) if sums else None
    bias_ih = rest.pop(0) if layer.bias and layer.projects else None
    bias_hh = rest.pop(0) if layer.bias and sums else None
    steps, batch = x.shape[:2]
    state = first or [x.new_zeros(batch, layer.hidden_size)] * layer.cell.states
    ends = None if lengths is None else lengths.to(x.device).unsqueeze(1)
    projected = (x if weight_ih is None else linear(x, weight_ih, bias_ih)).chunk(gates, -1)
    outputs = []
    for t in reversed(range(steps)) if is_backwards else range(steps):
        recurrent = () if weight_hh is None else linear(state[0], weight_hh, bias_hh).chunk(sums, -1)
        after = step([gate[t] for gate in projected], recurrent, state, rest)
        if ends is not None:
            after = [torch.where(t < ends, new, old) for new, old in zip(after, state, strict=True)]
        outputs.append(after[0] if ends is None else torch.where(t < ends, after[0], 0.0))
        state = after
    return torch.stack(outputs[::-1] if is_backwards else outputs), state


# ---- a step ----

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
