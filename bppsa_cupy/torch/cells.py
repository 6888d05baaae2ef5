"""Cells in PyTorch's operations: their functions, and passes step by step, slow and differentiable to any
order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.nn.functional import linear

from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.torch.engine import EngineLayer

# ---- the functions of cells, by the names that the texts of twins have them by ----

sigmoid, tanh = torch.sigmoid, torch.tanh
exponential, expm1 = torch.exp, torch.expm1
sine, cosine, magnitude, select = torch.sin, torch.cos, torch.abs, torch.where


def _with_slope_above_0(function: Callable[..., torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function whose derivative is 0 up to 0, so that a side that `select` does not choose adds nothing,
    be its slope infinite."""

    def call(x: torch.Tensor) -> torch.Tensor:
        is_low = x <= 0
        return torch.where(is_low, function(x.detach()), function(torch.where(is_low, 1, x)))

    return call


sqrt, logarithm = map(_with_slope_above_0, (torch.sqrt, torch.log))


def bounded_root(x: torch.Tensor) -> torch.Tensor:
    """The square root of x, whose derivative is 1000 where it were more."""
    least = 2.5e-7
    small = x.detach().sqrt() + 1000 * (x - x.detach())
    return torch.where(x > least, x.clamp(min=least).sqrt(), small)


def number(like: torch.Tensor, value: float) -> float:
    """A number, which takes the tensors' dtype."""
    return value


def multiply_add(x: Any, y: Any, z: Any) -> Any:
    """x y + z"""
    return x * y + z


#: (x, u, states, parameters), each a sequence of tensors that broadcast -> the new states.
Step = Callable[..., Sequence[torch.Tensor]]


def step_of(cell: CellForm) -> Step:
    """The step of a cell. Its derivatives at kinks are those of the kernels: Max(x, 0) has 0 at 0."""
    # The text of the cell's twins is plain Python: here in the names above.
    forward = FunctionType(cell.functions.forward.__code__, globals(), "forward")
    return lambda *groups: forward(*groups)[0]


# ---- passes ----


def unrolled(
    engine: EngineLayer,
    bounds: torch.Tensor | None,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """Output and last states, as the engine's pass gives them."""
    layer = engine.layer
    step = step_of(layer.cell)

    def walk(is_backwards: bool, x: torch.Tensor, state: Any, weights: Sequence[torch.Tensor]) -> Any:
        """The outputs (T, B, H) of one inner layer in one direction over x (T, B, F), and its last states."""
        rest = list(weights)
        weight_ih = rest.pop(0) if layer.projects else None
        weight_hh = rest.pop(0)
        bias_ih = rest.pop(0) if layer.bias and layer.projects else None
        bias_hh = rest.pop(0) if layer.bias else None
        steps, batch = x.shape[:2]
        state = state or [x.new_zeros(batch, layer.hidden_size)] * layer.cell.states
        ends = cuts = None
        if bounds is not None and bounds.dtype == torch.bool:
            cuts = bounds.T.unsqueeze(-1).roll(-1, 0) if is_backwards else bounds.T.unsqueeze(-1)
        elif bounds is not None:
            ends = bounds.to(x.device).unsqueeze(1)
        projected = (x if weight_ih is None else linear(x, weight_ih, bias_ih)).chunk(layer.cell.gates, -1)
        outputs = []
        for t in reversed(range(steps)) if is_backwards else range(steps):
            if cuts is not None and not (is_backwards and t == steps - 1):
                state = [torch.where(cuts[t], 0.0, part) for part in state]
            recurrent = linear(state[0], weight_hh, bias_hh).chunk(layer.cell.sums, -1)
            after = step([gate[t] for gate in projected], recurrent, state, rest)
            if ends is not None:
                after = [torch.where(t < ends, new, old) for new, old in zip(after, state, strict=True)]
            y = after[layer.output]
            outputs.append(y if ends is None else torch.where(t < ends, y, 0.0))
            state = after
        return torch.stack(outputs[::-1] if is_backwards else outputs), state

    y = x.transpose(0, 1) if layer.batch_first else x
    count = len(parameters) // (layer.num_layers * layer.directions)
    after = []
    for number in range(layer.num_layers):
        outputs = []
        for direction in range(layer.directions):
            place = layer.directions * number + direction
            weights = parameters[place * count : (place + 1) * count]
            output, last = walk(bool(direction), y, [state[place] for state in states], weights)
            outputs.append(output)
            after.append(last)
        y = torch.cat(outputs, -1)
    y = y.transpose(0, 1) if layer.batch_first else y
    return (y, *map(torch.stack, zip(*after, strict=True)))
