"""PyTorch's recurrent modules in float64 as the oracle of ours: packed sequences for lengths, for heads
dense weights with zeros beside the blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tolerances import assert_close
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import bppsa_cupy as bp


@dataclass
class Given:
    """One batch: input (B, T, F), lengths or None, initial states h or (h, c), and the loss's gradients by
    the output and by the final states."""

    x: np.ndarray
    lengths: np.ndarray | None
    initial: tuple[np.ndarray, ...]
    by_output: np.ndarray
    by_final: tuple[np.ndarray, ...]


@dataclass
class Found:
    """What one side made of it."""

    output: np.ndarray
    final: tuple[np.ndarray, ...]
    by_parameter: dict[str, np.ndarray]
    by_input: np.ndarray
    by_initial: tuple[np.ndarray, ...]


def draw(layer: bp.Recurrent, batch: int, steps: int, ragged: bool, rng: np.random.Generator) -> Given:
    """Random arrays for a layer."""
    shape = (layer.num_layers * layer.directions, batch, layer.hidden_size)
    states = tuple(rng.standard_normal(shape) for _ in range(2 * layer.cell.states))
    lengths = rng.integers(1, steps + 1, batch) if ragged else None
    if ragged:
        lengths[rng.integers(batch)] = steps
    output = (batch, *layer.output_shape((steps, layer.input_size)))
    return Given(
        rng.standard_normal((batch, steps, layer.input_size)),
        lengths,
        states[: layer.cell.states],
        rng.standard_normal(output),
        states[layer.cell.states :],
    )


def ours(net: bp.Sequential, given: Given) -> Found:
    """A network of one layer; arrays in its dtype."""
    cast = [tuple(a.astype(net.dtype) for a in part) for part in (given.initial, given.by_final)]
    y = net.forward(given.x.astype(net.dtype), given.lengths, states={0: cast[0]})
    output = net.device.to_host(y).copy()
    by_input = net.backward(
        given.by_output.astype(net.dtype), input_gradient=True, state_gradients={0: cast[1]}
    )
    return Found(
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


def dense(weight_hh: np.ndarray, heads: int) -> np.ndarray:
    """(G H, h) of heads as (G H, H), each row in its head's columns."""
    rows, units = weight_hh.shape
    by_head = weight_hh.reshape(-1, heads, units, units)
    found = np.zeros((len(by_head), heads, units, heads, units), weight_hh.dtype)
    for head in range(heads):
        found[:, head, :, head] = by_head[:, head]
    return found.reshape(rows, heads * units)


def of_heads(weight_hh: np.ndarray, heads: int) -> np.ndarray:
    """What `dense` takes, of what it gives."""
    rows, hidden = weight_hh.shape
    units = hidden // heads
    by_head = weight_hh.reshape(-1, heads, units, heads, units)
    return np.stack([by_head[:, head, :, head] for head in range(heads)], axis=1).reshape(rows, units)


def reference_of(net: bp.Sequential) -> torch.nn.Module:
    """PyTorch's module with the parameters of a network of one layer."""
    layer = net.layers[0]
    ours = ("outputs", "forward_method", "heads")
    options = {name: value for name, value in layer.config().items() if name not in ours}
    module = getattr(torch.nn, type(layer).__name__)(**options).double()
    state = {name.removeprefix("0."): array for name, array in net.state_dict().items()}
    state |= {
        name: dense(array, layer.heads) for name, array in state.items() if name.startswith("weight_hh")
    }
    module.load_state_dict({name: torch.tensor(array) for name, array in state.items()})
    return module


def theirs(net: bp.Sequential, given: Given) -> Found:
    """PyTorch's answer for the network's only layer."""
    layer, module = net.layers[0], reference_of(net)
    x = torch.tensor(given.x, requires_grad=True)
    initial = [torch.tensor(array, requires_grad=True) for array in given.initial]
    handed = initial[0] if len(initial) == 1 else tuple(initial)
    if given.lengths is None:
        output, final = module(x, handed)
    else:
        packed = pack_padded_sequence(x, given.lengths, batch_first=True, enforce_sorted=False)
        output, final = module(packed, handed)
        output, _ = pad_packed_sequence(output, batch_first=True)
    finals = (final,) if len(initial) == 1 else final
    if layer.outputs == "last":
        output = torch.cat(list(finals[0][-layer.directions :]), dim=1)
    loss = (output * torch.tensor(given.by_output)).sum()
    for state, gradient in zip(finals, given.by_final, strict=True):
        loss = loss + (state * torch.tensor(gradient)).sum()
    loss.backward()
    gradients = {name: parameter.grad.numpy() for name, parameter in module.named_parameters()}
    weights = [name for name in gradients if name.startswith("weight_hh")]
    return Found(
        output.detach().numpy(),
        tuple(state.detach().numpy() for state in finals),
        gradients | {name: of_heads(gradients[name], layer.heads) for name in weights},
        x.grad.numpy(),
        tuple(state.grad.numpy() for state in initial),
    )


def compare(net: bp.Sequential, batch: int, steps: int, ragged: bool, seed: int = 0) -> None:
    """Outputs, states and all gradients of a network of one layer are PyTorch's."""
    layer = net.layers[0]
    given = draw(layer, batch, steps, ragged, np.random.default_rng(seed))
    actual, expected = ours(net, given), theirs(net, given)
    length = layer.hidden_size * layer.num_layers * steps
    assert_close(actual.output, expected.output, length, what="output")
    assert_close(actual.by_input, expected.by_input, length, what="gradient by the input")
    for name in expected.by_parameter:
        assert_close(actual.by_parameter[name], expected.by_parameter[name], length * batch, what=name)
    assert set(actual.by_parameter) == set(expected.by_parameter)
    for one, other in zip(
        actual.final + actual.by_initial, expected.final + expected.by_initial, strict=True
    ):
        assert_close(one, other, length, what="states")
