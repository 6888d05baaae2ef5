"""Embedding against PyTorch's, and what it refuses."""

from __future__ import annotations

import numba
import numpy as np
import pytest
import torch

import bppsa_cupy as bp


@pytest.mark.parametrize("shape", [(5,), (4, 3), ()])
@pytest.mark.parametrize("padding_idx", [None, 2, -1])
def test_passes_are_pytorchs(shape: tuple[int, ...], padding_idx: int | None) -> None:
    theirs = torch.nn.Embedding(7, 3, padding_idx).double()
    net = bp.Sequential([bp.Embedding(7, 3, padding_idx)], input_shape=shape, dtype="float64", device="host")
    net.load_state_dict({"0.weight": theirs.weight.detach().numpy()})
    indices = np.random.default_rng(0).integers(0, 7, (6, *shape))
    y = net.forward(indices)
    wanted = theirs(torch.tensor(indices))
    np.testing.assert_array_equal(y, wanted.detach())
    gradient = np.random.default_rng(1).standard_normal(y.shape)
    wanted.backward(torch.tensor(gradient))
    by_input = net.backward(gradient, input_gradient=True)
    np.testing.assert_allclose(net.gradients["0.weight"], theirs.weight.grad, atol=1e-13)
    assert by_input.shape == indices.shape and not by_input.any()


def test_whole_numbers_are_indices_and_gradients_know_no_threads() -> None:
    net = bp.Sequential([bp.Embedding(3, 5), bp.Linear(5, 2)], input_shape=(100,), device="host")
    x = np.random.default_rng(0).integers(0, 3, (4, 100))
    y = net.forward(x.astype(np.float32)).copy()
    np.testing.assert_array_equal(net.forward(x), y)
    found = []
    for threads in (1, 2):
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        net.backward(np.random.default_rng(1).standard_normal(y.shape).astype(np.float32))
        found.append(net.gradients["0.weight"].copy())
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("index", [-1, 7, 0.5, np.nan, np.inf])
def test_indices_outside_are_refused_with_the_index(index: float) -> None:
    net = bp.Sequential([bp.Embedding(7, 3)], input_shape=(2,), device="host")
    with pytest.raises(bp.ShapeError, match=rf"got the index {index:g}: it takes whole numbers from 0 to 6"):
        net.forward(np.array([[1, index]], np.float32))
    with pytest.raises(bp.ShapeError, match="padding_idx"):
        bp.Embedding(7, 3, 7)
