"""Embedding against PyTorch's, and the indices that it refuses."""

import numba
import numpy as np
import pytest
import torch

import bppsa_cupy as bp


@pytest.mark.parametrize("shape", [(5,), (4, 3), ()])
@pytest.mark.parametrize("padding_idx", [None, 2, -1])
def test_passes_are_pytorchs_on_any_number_of_threads(shape, padding_idx, rng):
    theirs = torch.nn.Embedding(7, 3, padding_idx).double()
    net = bp.Sequential([bp.Embedding(7, 3, padding_idx)], shape, dtype="float64", device="host")
    net.load_state_dict({"0.weight": theirs.weight.detach().numpy()})
    indices = rng.integers(0, 7, (60, *shape))
    wanted = theirs(torch.tensor(indices))
    y = net.forward(indices)
    np.testing.assert_array_equal(y, wanted.detach())
    np.testing.assert_array_equal(net.forward(indices.astype(float)), y)
    gradient = rng.standard_normal(y.shape)
    wanted.backward(torch.tensor(gradient))
    by_input = net.backward(gradient, input_gradient=True)
    np.testing.assert_allclose(net.gradients["0.weight"], theirs.weight.grad, atol=1e-12)
    assert by_input.shape == indices.shape and not by_input.any()
    found, threads = net.gradients["0.weight"].copy(), numba.get_num_threads()
    numba.set_num_threads(1)
    net.backward(gradient)
    numba.set_num_threads(threads)
    np.testing.assert_array_equal(net.gradients["0.weight"], found)


@pytest.mark.parametrize("index", [-1, 7, 0.5, np.nan, np.inf])
def test_indices_outside_are_refused_with_the_index(index):
    net = bp.Sequential([bp.Embedding(7, 3)], input_shape=(2,), device="host")
    with pytest.raises(bp.ShapeError, match=rf"index {index:g}.* 0 to 6"):
        net.forward(np.array([[1, index]], np.float32))
