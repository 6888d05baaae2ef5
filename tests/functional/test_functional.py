"""`bp.functional`: passes of a layer without a network, any number of them alive."""

from __future__ import annotations

import copy
import gc
import weakref

import numpy as np
import pytest
import torch
from layer_cases import CASES
from marks import some
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy.devices import Device
from bppsa_cupy.functional import Gradients, forward, vjp
from bppsa_cupy.functional.passes import pool_of
from bppsa_cupy.layers import LAYERS


def values_of(layer, rng, dtype="float64"):
    """Fresh parameters and buffers of a layer, by name."""
    parameters = {name: array.astype(dtype) for name, array in layer.initialize(rng).items()}
    return parameters, {name: np.array(value) for name, value in layer.initial_buffers().items()}


#: A linear cell.
LEAKY = bp.Cell("leaky", gates=["h"], states=["h"], recurrent=[], step=lambda x, u, s, p: s.h / 2 + x.h)
#: Layers that CASES does not have, and the shape of an input without the batch.
OTHERS = {
    "CellLayer": (lambda: bp.CellLayer(bp.Cell.built_in("gru"), 3, 4), (5, 3)),
    "LinearCellLayer": (lambda: bp.LinearCellLayer(LEAKY, 3, 4), (5, 3)),
    "MinGRU": (lambda: bp.MinGRU(3, 4), (5, 3)),
    "MinLSTM": (lambda: bp.MinLSTM(3, 4), (5, 3)),
    "SRU": (lambda: bp.SRU(3, 4), (5, 3)),
    "QRNN": (lambda: bp.QRNN(3, 4), (5, 3)),
    "RGLRU": (lambda: bp.RGLRU(4), (5, 4)),
    "LRU": (lambda: bp.LRU(3, 4), (5, 3)),
    "DiagonalSSM": (lambda: bp.DiagonalSSM(3, 4), (5, 3)),
}
EVERY_LAYER = {case.name: (case.make, case.input_shape) for case in CASES} | OTHERS
#: Those whose cells no other test compiles are left to long runs.
QUICK = [*(case.name for case in CASES), "MinGRU", "QRNN", "RGLRU", "LRU"]


def test_every_kind_of_layer_has_a_case() -> None:
    assert {type(make()) for make, _ in EVERY_LAYER.values()} >= set(LAYERS.values())


@pytest.mark.parametrize("name", some(*QUICK, long=[name for name in EVERY_LAYER if name not in QUICK]))
def test_arrays_may_be_overwritten_after_the_forward_pass(name: str, rng: np.random.Generator) -> None:
    """Input, output, first and last states and lengths are the caller's again: only parameters stay."""
    make, shape = EVERY_LAYER[name]
    layer = make()
    parameters, buffers = values_of(layer, rng)
    x = rng.standard_normal((3, *shape))
    beside: dict[str, np.ndarray] = {}
    if isinstance(layer, bp.Recurrent):
        dtype = layer.state_dtype(x.dtype)
        count = layer.num_layers * layer.directions
        states = [rng.standard_normal((count, 3, layer.hidden_size)).astype(dtype) for _ in "hc"]
        beside = {"states": states[0] if layer.state_count == 1 else tuple(states), "lengths": None}
    for lengths in (None, np.array([2, 4, 5])) if beside else (None,):
        if beside:
            beside["lengths"] = lengths
        inputs, options = copy.deepcopy((x, beside))
        y, saved = forward(layer, parameters, inputs, buffers=copy.deepcopy(buffers), **options)
        g = rng.standard_normal(y.shape)
        expected = copy.deepcopy(vjp(saved, g))
        for array in (inputs, y, saved.states, options.get("states"), options.get("lengths")):
            for part in array if isinstance(array, tuple) else (array,):
                if part is not None:
                    part[...] = 1 if part.dtype.kind == "i" else np.nan
        actual = vjp(saved, g)
        for mine, wanted in zip(flat(actual), flat(expected), strict=True):
            np.testing.assert_array_equal(mine, wanted)


def flat(gradients: Gradients) -> list[np.ndarray]:
    states = gradients.states if isinstance(gradients.states, tuple) else (gradients.states,)
    return [*gradients.parameters.values(), gradients.input, *(s for s in states if s is not None)]


def sequences(batch_first: bool, rng: np.random.Generator, dtype="float64"):
    """A recurrent layer in one layout, its parameters, an input and a gradient."""
    layer = bp.LSTM(3, 5, 2, batch_first=batch_first, bidirectional=True)
    parameters, _ = values_of(layer, rng, dtype)
    x, g = rng.standard_normal((4, 7, 3)).astype(dtype), rng.standard_normal((4, 7, 10)).astype(dtype)
    order = (0, 1, 2) if batch_first else (1, 0, 2)
    return layer, parameters, np.ascontiguousarray(x.transpose(order)), g.transpose(order)


@pytest.mark.parametrize("batch_first", [True, False])
def test_sequences_have_states_lengths_and_either_layout(
    batch_first: bool, rng: np.random.Generator, device: Device
) -> None:
    layer, parameters, x, g = sequences(batch_first, rng)
    module = torch.nn.LSTM(3, 5, 2, batch_first=batch_first, bidirectional=True).double()
    module.load_state_dict({name: torch.tensor(value) for name, value in parameters.items()})
    lengths, states = [7, 1, 4, 5], tuple(rng.standard_normal((2, 4, 4, 5)))
    by_states = tuple(rng.standard_normal((2, 4, 4, 5)))
    y, saved = forward(layer, parameters, x, lengths=lengths, states=states, device=device)
    gradients = vjp(saved, g, state_gradients=by_states)

    inputs = [torch.tensor(array, requires_grad=True) for array in (x, *states)]
    utils = torch.nn.utils.rnn
    pack = utils.pack_padded_sequence(inputs[0], lengths, batch_first, enforce_sorted=False)
    out, after = module(pack, (inputs[1], inputs[2]))
    expected, _ = utils.pad_packed_sequence(out, batch_first, total_length=7)
    torch.autograd.backward([expected, *after], [torch.tensor(a) for a in (g, *by_states)])
    host = device.to_host
    assert_close(host(y), expected.detach(), 64)
    for ours, theirs in zip(saved.states, after, strict=True):
        assert_close(host(ours), theirs.detach(), 64)
    for ours, theirs in zip((gradients.input, *gradients.states), inputs, strict=True):
        assert_close(host(ours), theirs.grad, 64)
    for name, parameter in module.named_parameters():
        assert_close(host(gradients.parameters[name]), parameter.grad, 64, label=name)
    assert len(saved.context.forward_ways) == len(saved.context.backward_ways) == 4


def test_passes_live_side_by_side_and_go_back_more_than_once(rng: np.random.Generator) -> None:
    layer, parameters, x, g = sequences(True, rng)
    alone = []
    for scale in (1.0, -2.0, 0.5):
        y, saved = forward(layer, parameters, scale * x)
        alone.append((np.array(y), saved.states, vjp(saved, g)))
        del saved
    together = [forward(layer, parameters, scale * x) for scale in (1.0, -2.0, 0.5)]
    for order in ((2, 0, 1), (0, 1, 2)):
        for index in order:
            (y, saved), (expected, states, gradients) = together[index], alone[index]
            again = vjp(saved, g)
            assert np.array_equal(y, expected) and np.array_equal(saved.states, states)
            assert np.array_equal(again.input, gradients.input)
            assert all(np.array_equal(again.parameters[n], a) for n, a in gradients.parameters.items())


def test_parts_of_the_gradients_may_be_left_out(rng: np.random.Generator) -> None:
    layer, parameters, x, g = sequences(True, rng)
    _, saved = forward(layer, parameters, x)
    full = vjp(saved, g)
    frozen = vjp(saved, g, parameter_gradients=False)
    assert not frozen.parameters and np.array_equal(frozen.input, full.input)
    first = vjp(saved, g, input_gradient=False)
    assert first.input is None and np.array_equal(first.states, full.states)
    assert all(np.array_equal(first.parameters[n], a) for n, a in full.parameters.items())


def test_parameters_are_used_where_they_lie(rng: np.random.Generator) -> None:
    layer, parameters, x, _ = sequences(True, rng)
    others = {name: -array for name, array in parameters.items()}
    (first, _), (second, _) = (forward(layer, values, x) for values in (parameters, others))
    assert not np.allclose(first, second)
    for name, array in parameters.items():
        array[...] = others[name]
    assert np.array_equal(forward(layer, parameters, x)[0], second)


def test_a_dropped_layer_leaves_no_memory(rng: np.random.Generator) -> None:
    layer, parameters, x, _ = sequences(True, rng)
    forward(layer, parameters, x)
    context = weakref.ref(pool_of(layer)._free[0].ctx)
    bp.functional.release_memory()
    gc.collect()
    assert context() is None
    forward(layer, parameters, x)
    pool = weakref.ref(pool_of(layer))
    del layer
    gc.collect()
    assert pool() is None
