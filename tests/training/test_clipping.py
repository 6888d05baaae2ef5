"""Clipping of gradients: PyTorch's meaning, no overflow, and gradients that are not finite."""

import numpy as np
import pytest
import torch
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy.network.parameters import ParameterSet

SHAPES = {"0.weight": (3, 5), "0.bias": (3,), "2.weight": (1, 3)}


def gradients_of(device, dtype, arrays):
    gradients = ParameterSet(
        device, np.dtype(dtype), {name: np.shape(array) for name, array in arrays.items()}
    )
    gradients.assign(arrays)
    return gradients


def arrays_of(rng, scale=1.0):
    return {name: scale * rng.standard_normal(shape) for name, shape in SHAPES.items()}


@pytest.mark.parametrize("max_norm", [1e-3, 1.0, 4.0, 100.0])
def test_clipped_gradients_equal_pytorch(device, dtype, rng, max_norm):
    gradients = gradients_of(device, dtype, arrays_of(rng))
    tensors = [torch.tensor(array, dtype=torch.float64) for array in gradients.to_host().values()]
    for tensor in tensors:
        tensor.grad = tensor.clone()
    expected = torch.nn.utils.clip_grad_norm_(tensors, max_norm)
    norm = bp.clip_grad_norm(gradients, max_norm)
    assert norm.dtype == np.float64 and norm.shape == ()
    np.testing.assert_allclose(device.to_host(norm), expected, rtol=20 * np.finfo(dtype).eps)
    for array, tensor in zip(gradients.to_host().values(), tensors, strict=True):
        assert_close(array, tensor.grad.numpy(), sum(map(np.prod, SHAPES.values())))
