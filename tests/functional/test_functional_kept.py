"""What a recurrent pass keeps, as arrays of the caller's: a pass made of them goes back as the first."""

from __future__ import annotations

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.devices import Device
from bppsa_cupy.functional import forward, vjp
from bppsa_cupy.functional.passes import begin, keep, resume


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("layer", [
    bp.GRU(3, 6, 2, bidirectional=True),
    bp.LSTM(3, 4, 2, batch_first=False, outputs="last"),
    bp.RNN(3, 4, bias=False),
], ids=["GRU", "LSTM", "RNN"])  # fmt: skip
def test_gradients_are_those_of_the_pass(
    layer, ragged: bool, device: Device, rng: np.random.Generator
) -> None:
    batch, steps = 4, 7
    parameters = {name: device.asarray(value) for name, value in layer.initialize(rng).items()}
    shape = (batch, steps, 3) if layer.batch_first else (steps, batch, 3)
    x = device.asarray(rng.standard_normal(shape))
    lengths = [7, 1, 4, 2] if ragged else None
    rows = (layer.num_layers * layer.directions, batch, layer.hidden_size)
    states = tuple(rng.standard_normal(rows) for _ in range(layer.cell.states))
    y, saved = forward(layer, parameters, x, lengths=lengths, states=states, device=device)
    storage = {k: device.zeros(s, np.float64) for k, s in layer.kept_shapes(batch, steps).items()}
    keep(saved, storage)
    g, by_states = rng.standard_normal(y.shape), tuple(rng.standard_normal(rows) for _ in states)
    expected = vjp(saved, g, state_gradients=by_states)
    forward(layer, parameters, -x, device=device)
    del saved

    again = begin(layer, device, x, "here", lambda: (parameters, {}), lengths, states, True)
    resume(again, x, lengths, states, storage)
    actual = vjp(again, g, state_gradients=by_states)
    host = device.to_host
    assert np.array_equal(host(actual.input), host(expected.input))
    for name, gradient in expected.parameters.items():
        assert np.array_equal(host(actual.parameters[name]), host(gradient)), name
    states = [state if isinstance(state, tuple) else (state,) for state in (actual.states, expected.states)]
    for ours, theirs in zip(*states, strict=True):
        assert np.array_equal(host(ours), host(theirs))
