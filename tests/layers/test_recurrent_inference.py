"""Passes without a way back: a recurrent layer takes a part of its steps at a time, in the same memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bppsa_cupy as bp
from bppsa_cupy.devices import rules
from bppsa_cupy.functional import forward

LAYERS = {
    "RNN": lambda **options: bp.RNN(3, 5, **options),
    "GRU of three inner layers": lambda **options: bp.GRU(3, 5, 3, **options),
    "LSTM": lambda **options: bp.LSTM(3, 5, **options),
}


@pytest.fixture(autouse=True)
def few_steps_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As small passes have: at most 16 / B steps a part, rounded so that parts are nearly equal."""
    monkeypatch.setattr(rules, "BYTES_AT_ONCE", 1)
    monkeypatch.setattr(rules, "SAMPLE_STEPS_AT_ONCE", 16)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("batch_first", [True, False])
@given(
    batch=st.integers(1, 18), steps=st.integers(1, 37), ragged=st.booleans(),
    outputs=st.sampled_from(["all", "last"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_outputs_and_states_have_the_bits_of_a_pass_that_keeps_all(
    kind, batch_first, batch, steps, ragged, outputs, seed
):
    rng = np.random.default_rng(seed)
    layer = LAYERS[kind](batch_first=batch_first, outputs=outputs)
    parameters = layer.initialize(rng)
    x = rng.standard_normal((batch, steps, 3))
    x = np.ascontiguousarray(x if batch_first else x.swapaxes(0, 1))
    shape = layer.num_layers, batch, layer.hidden_size
    states = [rng.standard_normal(shape) for _ in range(layer.state_count)]
    lengths = rng.integers(1, steps + 1, batch) if ragged else None
    wanted, full = forward(layer, parameters, x, lengths=lengths, states=states)
    y, saved = forward(layer, parameters, x, lengths=lengths, states=states, keep=False)
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(saved.states, full.states)
    part = max(length for _, length, _ in saved.context.stacks)
    assert part == steps or part <= max(1, 16 // batch)


def bytes_kept(net):
    return sum(array.nbytes for ctx in net.last_pass.layers for array in ctx.stored_arrays())


def test_its_memory_is_that_of_a_part_and_the_output(rng):
    x = rng.standard_normal((4, 4000, 3))
    layers = [bp.LSTM(3, 5), bp.Linear(5, 2)]
    net = bp.Sequential(layers, (4000, 3), seed=1, dtype="float64", device="host")
    net.forward(x)
    nbytes = bytes_kept(net)
    y = net.forward(x, keep=False)
    with pytest.raises(bp.PassError, match="keep=False"):
        net.backward(y)
    output = 4 * 4000 * 5 * 8
    assert bytes_kept(net) <= output + y.nbytes + nbytes / 500


def test_sizes_that_come_again_bind_nothing_anew(rng):
    net, fresh = (
        bp.Sequential([bp.GRU(3, 5)], (None, 3), seed=1, dtype="float64", device="host") for _ in range(2)
    )
    xs = [rng.standard_normal(shape) for shape in ((2, 100, 3), (2, 50, 3), (2, 75, 3), (20, 4, 3))]
    bound = []
    for x in xs * 2:
        for lengths in (None, [1, *[x.shape[1]] * (len(x) - 1)], None):
            y = net.forward(x, lengths, into=net.last_pass)
            np.testing.assert_array_equal(y, fresh.forward(x, lengths))
        bound.append(net.last_pass.layers[0].stack)
    assert all(a is b for a, b in zip(bound, bound[4:], strict=False))
