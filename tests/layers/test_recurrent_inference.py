"""Passes without a way back: a recurrent layer takes a part of its steps at a time, in the same memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bppsa_cupy as bp
import bppsa_cupy.torch as door
from bppsa_cupy.devices import rules
from bppsa_cupy.functional import forward, vjp

F64 = torch.float64
LAYERS = {
    "RNN": lambda **options: bp.RNN(3, 5, **options),
    "GRU of three inner layers": lambda **options: bp.GRU(3, 5, 3, **options),
    "LSTM": lambda **options: bp.LSTM(3, 5, **options),
    "LSTM of two heads": lambda **options: bp.LSTM(3, 6, heads=2, **options),
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
    wanted, kept = forward(layer, parameters, x, lengths=lengths, states=states)
    y, saved = forward(layer, parameters, x, lengths=lengths, states=states, keep=False)
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(saved.states, kept.states)
    part = next(iter(saved.context.at_once.values()))
    assert part == steps or part <= max(1, 16 // batch)


def network_of(layer, steps=40, **options):
    return bp.Sequential(
        [layer, bp.Linear(5, 2)], (steps, 3), seed=1, dtype="float64", device="host", **options
    )


def test_a_network_keeps_nothing_where_it_is_told_so(rng):
    net = network_of(bp.LSTM(3, 5))
    x = rng.standard_normal((4, 40, 3))
    y = net.forward(x)
    np.testing.assert_array_equal(net.forward(x, keep=False), y)
    with pytest.raises(bp.PassError, match=r"keep=False: run net\.forward\(x\) without it before backward"):
        net.backward(y)
    with pytest.raises(bp.PassError, match="keep=False"):
        net.transposed_jacobians()
    net.forward(x, into=net.last_pass)
    net.backward(y)
    assert np.isfinite(net.gradients["0.weight_hh_l0"]).all()


def bytes_kept(net):
    return sum(array.nbytes for ctx in net.last_pass.layers for array in ctx.kept())


def test_its_memory_is_that_of_a_part_and_the_output(rng):
    x = rng.standard_normal((4, 4000, 3))
    net = network_of(bp.LSTM(3, 5), steps=4000)
    net.forward(x)
    kept = bytes_kept(net)
    y = net.forward(x, keep=False)
    output = 4 * 4000 * 5 * 8
    assert bytes_kept(net) <= output + y.nbytes + kept / 500


@pytest.mark.parametrize("layer", [bp.GRU(3, 5, bidirectional=True), bp.GRU(3, 5, forward_method="newton")])
def test_what_needs_all_steps_takes_them_at_once(layer, rng):
    parameters = layer.initialize(rng)
    x = rng.standard_normal((4, 40, 3))
    wanted, _ = forward(layer, parameters, x)
    y, saved = forward(layer, parameters, x, keep=False)
    np.testing.assert_array_equal(y, wanted)
    assert list(saved.context.at_once.values()) == [40]
    with pytest.raises(bp.PassError, match="keep=False"):
        vjp(saved, y)


@pytest.mark.parametrize("lengths", [None, [40, 3, 17, 1]])
def test_pytorchs_modules_keep_nothing_without_gradients(lengths, monkeypatch):
    module, x = door.LSTM(3, 5, batch_first=True, dtype=F64), torch.randn(4, 40, 3, dtype=F64)
    given = x if lengths is None else torch.nn.utils.rnn.pack_padded_sequence(x, lengths, True, False)
    y, states = module(given)
    parts = []
    taken = bp.LSTM._enter
    monkeypatch.setattr(bp.LSTM, "_enter", lambda *arguments: parts.append(arguments[3]) or taken(*arguments))
    for without in (torch.no_grad, torch.inference_mode):
        with without():
            again, after = module(given)
        assert parts == list(range(0, 40, 4))
        parts.clear()
        assert torch.equal(y if lengths is None else y.data, again if lengths is None else again.data)
        assert all(map(torch.equal, states, after))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own, at first use
def test_forward_mode_is_refused_without_gradients_too():
    module, x = door.GRU(3, 5, dtype=F64), torch.randn(4, 2, 3, dtype=F64)
    forward_ad = torch.autograd.forward_ad
    with torch.no_grad(), forward_ad.dual_level(), pytest.raises(bp.PassError, match="forward-mode"):
        module(forward_ad.make_dual(x, torch.ones_like(x)))
