"""Recurrent layers whose units see those of their head alone: PyTorch's, with zeros beside the blocks."""

from __future__ import annotations

import numpy as np
import pytest
from cell_reference import MAKES, compare_with_autograd
from marks import some
from recurrent_reference import compare, reference_of
from tolerances import assert_close

import bppsa_cupy as bp

LAYERS = {"RNN": bp.RNN, "GRU": bp.GRU, "LSTM": bp.LSTM}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(
    "hidden, heads, batch", [(6, 6, 1), (20, 2, 16), (66, 3, 17), (64, 4, 5), (100, 50, 2), (40, 2, 33)]
)
def test_sizes(name: str, hidden: int, heads: int, batch: int) -> None:
    net = bp.Sequential([LAYERS[name](3, hidden, heads=heads)], (9, 3), dtype="float64", device="host")
    compare(net, batch, 9, ragged=batch > 1)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("bias", [True, False])
def test_devices_agree(name: str, bias: bool, device: str) -> None:
    layer = LAYERS[name](2, 6, 2, bidirectional=True, bias=bias, heads=3)
    compare(bp.Sequential([layer], (4, 2), dtype="float64", device=device), 3, 4, ragged=True)


@pytest.mark.parametrize("name", LAYERS)
def test_every_method_gives_the_same_gradients(name: str, device: str, rng: np.random.Generator) -> None:
    layer = LAYERS[name](3, 12, bidirectional=True, heads=4, outputs="last")
    net = bp.Sequential([layer, bp.Linear(24, 2)], (23, 3), dtype="float64", device=device)
    x, gradient = rng.standard_normal((3, 23, 3)), rng.standard_normal((3, 2))
    found = {}
    for method in ("bp", "blelloch"):
        net.forward(x, lengths=np.array([23, 5, 17]))
        net.backward(gradient, method=method)
        found[method] = net.gradients.to_host()
    assert all("chunked" in way for way in net.last_backward.backward_ways)
    for key, value in found["bp"].items():
        assert_close(found["blelloch"][key], value, 23 * 12, what=key)


@pytest.mark.parametrize("method", ["newton", "quasi-newton"])
@pytest.mark.parametrize("name", LAYERS)
def test_newton_gives_the_states_of_the_serial_pass(name: str, method: str, rng: np.random.Generator) -> None:
    x, lengths, found = rng.standard_normal((2, 60, 3)), np.array([60, 41]), []
    for way in ("serial", method):
        layer = LAYERS[name](3, 12, bidirectional=True, heads=4, forward_method=way)
        net = bp.Sequential([layer], (60, 3), dtype="float64", device="host", seed=3)
        found.append(net.forward(x, lengths=lengths).copy())
    assert all(": converged" in way for way in net.last_pass.forward_ways)
    assert_close(found[1], found[0], 60 * 12, what="output")


@pytest.mark.parametrize("name", some("mgu", long=[name for name in MAKES if name != "mgu"]))
def test_a_layer_of_any_cell_agrees_with_autograd(name: str) -> None:
    make, step = MAKES[name]
    net = bp.Sequential([make(3, 6, heads=3)], (7, 3), dtype="float64")
    compare_with_autograd(net, step, 4, 7, ragged=True)


@pytest.mark.parametrize("name", LAYERS)
def test_jacobians_are_those_of_the_dense_layer_in_blocks(
    name: str, device: str, rng: np.random.Generator
) -> None:
    heads = bp.Sequential([LAYERS[name](2, 6, heads=3)], (5, 2), dtype="float64", device=device)
    full = bp.Sequential([LAYERS[name](2, 6)], (5, 2), dtype="float64", device=device)
    module = reference_of(heads)
    full.load_state_dict({f"0.{key}": value.numpy() for key, value in module.state_dict().items()})
    x = rng.standard_normal((2, 5, 2))
    heads.forward(x)
    full.forward(x)
    pairs = list(zip(heads.transposed_jacobians(), full.transposed_jacobians(), strict=True))
    assert len(pairs) == 5
    for ours_, theirs_ in pairs:
        assert 2 * ours_.pattern.nnz <= theirs_.pattern.nnz
        for sample in range(2):
            np.testing.assert_allclose(
                ours_.to_scipy(sample).toarray(), theirs_.to_scipy(sample).toarray(), atol=1e-14
            )


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(bp.ShapeError, match=r"GRU got heads=3 and hidden_size=20: heads must divide"):
        bp.GRU(3, 20, heads=3)
    with pytest.raises(bp.ShapeError, match="GRU got heads=0"):
        bp.GRU(3, 20, heads=0)


def test_a_checkpoint_of_another_number_of_heads_is_refused() -> None:
    state = bp.Sequential([bp.GRU(3, 4, heads=2)], (5, 3)).state_dict()
    with pytest.raises(bp.BppsaError, match="weight_hh_l0"):
        bp.Sequential([bp.GRU(3, 4)], (5, 3)).load_state_dict(state)
