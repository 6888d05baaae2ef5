"""A recurrent pass in PyTorch's operations, step by step: slow, and differentiable to any order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import linear

from bppsa_cupy.cells.definitions import DEFINITIONS
from bppsa_cupy.layers import CellLayer, MatrixRecurrent
from bppsa_cupy.torch.engine_layer import EngineLayer
from bppsa_cupy.torch.expressions import Step, step_of


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
