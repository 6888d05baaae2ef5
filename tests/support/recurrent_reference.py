"""Recurrent layers in PyTorch: its own modules, and the steps of other cells under its autograd, in float64.

Packed sequences stand for lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import sympy
import torch
from cell_formulas import formulas, spaces
from tolerances import assert_close
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import bppsa_cupy as bp

leaf = partial(torch.tensor, dtype=torch.float64, requires_grad=True)

# ---- cells ----


FORMULAS = formulas(torch.sigmoid, torch.tanh, torch.relu)
#: SymPy's functions, and those of `bp.cells`, on tensors.
FUNCTIONS = {"Sigmoid": torch.sigmoid, "tanh": torch.tanh, "sqrt": torch.sqrt, "relu": torch.relu}


def step_of(cell: bp.Cell) -> Callable[..., list[torch.Tensor]]:
    """A built-in cell's formula; the step of another one by SymPy, which knows nothing of our texts."""
    if cell.name in FORMULAS:
        return FORMULAS[cell.name]
    names = cell.gates, cell.recurrent, cell.states, cell.parameters
    symbols = [
        [sympy.Symbol(f"{kind}_{name}", real=True) for name in group]
        for kind, group in zip("xusp", names, strict=True)
    ]
    after = cell.step(*spaces(cell, *symbols))
    after = [after[state] for state in cell.states] if isinstance(after, dict) else list(after)
    relu = sympy.Function("relu")
    after = [sympy.sympify(e).replace(sympy.Max, lambda a, b: relu(b if a == 0 else a)) for e in after]
    function = sympy.lambdify([symbol for kind in symbols for symbol in kind], after, [FUNCTIONS])

    def step(*kinds: SimpleNamespace) -> list[torch.Tensor]:
        values = [value for kind in kinds for value in vars(kind).values()]
        return [value + 0 * values[0] for value in function(*values)]  # some are numbers

    return step


def walk(
    cell: bp.Cell, values: dict[str, torch.Tensor], suffix: str, x: torch.Tensor, lengths: torch.Tensor,
    state: Sequence[torch.Tensor], reverse: bool = False,
) -> tuple[torch.Tensor, list[torch.Tensor]]:  # fmt: skip
    """Every step's h, (B, T, H), and the last states, by PyTorch."""
    hidden, step, outputs = state[0].shape[1], step_of(cell), [state[0]] * x.shape[1]
    p = [values[f"{name}{suffix}"] for name in cell.parameters]
    weight = values[f"weight_hh{suffix}"] if cell.recurrent else None
    for t in reversed(range(x.shape[1])) if reverse else range(x.shape[1]):
        gates = x[:, t] @ values[f"weight_ih{suffix}"].T + values[f"bias_ih{suffix}"]
        sums = () if weight is None else (state[0] @ weight.T + values[f"bias_hh{suffix}"]).split(hidden, 1)
        new, inside = step(*spaces(cell, gates.split(hidden, 1), sums, state, p)), (t < lengths)[:, None]
        state = [torch.where(inside, after, before) for after, before in zip(new, state, strict=True)]
        outputs[t] = torch.where(inside, state[0], torch.zeros_like(state[0]))
    return torch.stack(outputs, 1), list(state)


# ---- layers ----


@dataclass
class Inputs:
    """One batch: input (B, T, F), lengths or None, initial states h or (h, c), and the loss's gradients by
    the output and by the final states."""

    x: np.ndarray
    lengths: np.ndarray | None
    initial: tuple[np.ndarray, ...]
    by_output: np.ndarray
    by_final: tuple[np.ndarray, ...]


@dataclass
class Results:
    """What one side made of it."""

    output: np.ndarray
    final: tuple[np.ndarray, ...]
    by_parameter: dict[str, np.ndarray]
    by_input: np.ndarray
    by_initial: tuple[np.ndarray, ...]


def draw(layer: bp.Recurrent, batch: int, steps: int, ragged: bool, rng: np.random.Generator) -> Inputs:
    """Random arrays for a layer."""
    shape = (layer.num_layers * layer.directions, batch, layer.hidden_size)
    states = tuple(rng.standard_normal(shape) for _ in range(2 * layer.cell.states))
    lengths = rng.integers(1, steps + 1, batch) if ragged else None
    if ragged:
        lengths[rng.integers(batch)] = steps
    output = (batch, *layer.output_shape((steps, layer.input_size)))
    return Inputs(
        rng.standard_normal((batch, steps, layer.input_size)),
        lengths,
        states[: layer.cell.states],
        rng.standard_normal(output),
        states[layer.cell.states :],
    )


def ours(net: bp.Sequential, inputs: Inputs, method: str = "auto") -> Results:
    """A network of one layer; arrays in its dtype."""
    cast = [tuple(a.astype(net.dtype) for a in part) for part in (inputs.initial, inputs.by_final)]
    y = net.forward(inputs.x.astype(net.dtype), inputs.lengths, states={0: cast[0]})
    output = net.device.to_host(y).copy()
    by_input = net.backward(
        inputs.by_output.astype(net.dtype), method, input_gradient=True, state_gradients={0: cast[1]}
    )
    return Results(
        output,
        _copies(net, net.last_pass.states[0]),
        {name.removeprefix("0."): array for name, array in net.gradients.to_host().items()},
        net.device.to_host(by_input),
        _copies(net, net.last_pass.state_gradients[0]),
    )


def _copies(net: bp.Sequential, state: Any) -> tuple[np.ndarray, ...]:
    return tuple(
        np.array(net.device.to_host(part)) for part in (state if isinstance(state, tuple) else (state,))
    )


def reference_of(net: bp.Sequential) -> torch.nn.Module:
    """PyTorch's module with the parameters of a network of one layer."""
    layer = net.layers[0]
    ours = ("outputs", "forward_method")
    options = {name: value for name, value in layer.config().items() if name not in ours}
    module = getattr(torch.nn, type(layer).__name__)(**options).double()
    state = net.state_dict().items()
    module.load_state_dict({name.removeprefix("0."): torch.tensor(array) for name, array in state})
    return module


def theirs(net: bp.Sequential, inputs: Inputs) -> Results:
    """PyTorch's answer for the network's only layer: by its module, or by steps."""
    layer, x, initial = net.layers[0], leaf(inputs.x), [leaf(array) for array in inputs.initial]
    if type(layer).__name__ in ("RNN", "GRU", "LSTM"):
        module = reference_of(net)
        parameters, handed = dict(module.named_parameters()), tuple(initial) if initial[1:] else initial[0]
        if inputs.lengths is None:
            output, final = module(x, handed)
        else:
            packed = pack_padded_sequence(x, inputs.lengths, batch_first=True, enforce_sorted=False)
            output, final = module(packed, handed)
            output, _ = pad_packed_sequence(output, batch_first=True)
        finals = final if initial[1:] else (final,)
    else:
        parameters = {name.removeprefix("0."): leaf(array) for name, array in net.state_dict().items()}
        lengths = np.full(len(x), x.shape[1]) if inputs.lengths is None else inputs.lengths
        output, ends = x, []
        for number in range(layer.num_layers):
            sides = []
            for direction, end in enumerate(("", "_reverse")[: layer.directions]):
                before = [part[len(ends)] for part in initial]
                place = f"_l{number}{end}", output, torch.tensor(lengths), before
                y, state = walk(layer.definition, parameters, *place, bool(direction))
                sides.append(y)
                ends.append(state)
            output = torch.cat(sides, 2)
        finals = [torch.stack(part) for part in zip(*ends, strict=True)]
    if layer.outputs == "last":
        output = torch.cat(list(finals[0][-layer.directions :]), dim=1)
    loss = (output * torch.tensor(inputs.by_output)).sum()
    for state, gradient in zip(finals, inputs.by_final, strict=True):
        loss = loss + (state * torch.tensor(gradient)).sum()
    loss.backward()
    return Results(
        output.detach().numpy(),
        tuple(state.detach().numpy() for state in finals),
        {name: parameter.grad.numpy() for name, parameter in parameters.items()},
        x.grad.numpy(),
        tuple(state.grad.numpy() for state in initial),
    )


def compare(
    net: bp.Sequential, batch: int, steps: int, ragged: bool, seed: int = 0, method: str = "auto"
) -> None:
    """Outputs, states and all gradients of a network of one layer are PyTorch's."""
    layer = net.layers[0]
    inputs = draw(layer, batch, steps, ragged, np.random.default_rng(seed))
    actual, expected = ours(net, inputs, method), theirs(net, inputs)
    length = layer.hidden_size * layer.num_layers * steps
    assert_close(actual.output, expected.output, length, label="output")
    assert_close(actual.by_input, expected.by_input, length, label="gradient by the input")
    for name in expected.by_parameter:
        assert_close(actual.by_parameter[name], expected.by_parameter[name], length * batch, label=name)
    assert set(actual.by_parameter) == set(expected.by_parameter)
    for state, wanted in zip(
        actual.final + actual.by_initial, expected.final + expected.by_initial, strict=True
    ):
        assert_close(state, wanted, length, label="states")
