"""Layers of cells with some recurrent gates, in PyTorch and in JAX: the engine's results and derivatives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cell_cases import PARTLY
from jax_cases import bj, jax
from marks import some

import bppsa_cupy as bp
import bppsa_cupy.torch as bt


@pytest.mark.parametrize("name", some("partly", long=("forgetful",)))
def test_in_pytorch_and_jax(name: str) -> None:
    cell = PARTLY[name]
    rng = np.random.default_rng(0)
    module = bt.CellLayer(cell, 2, 3, batch_first=True, dtype=torch.float64)
    x = torch.tensor(rng.standard_normal((2, 5, 2)), requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: module(x)[0], x)
    assert torch.autograd.gradgradcheck(lambda x: module(x)[0], x)
    layer = bp.CellLayer(cell, 2, 3)
    values = {n: p.detach().numpy() for n, p in module.named_parameters()}
    y, saved = bp.functional.forward(layer, values, x.detach().numpy())
    np.testing.assert_allclose(module(x)[0].detach(), y, atol=1e-13)
    with jax.enable_x64(True):
        by_jax = jax.grad(lambda x: bj.CellLayer(cell, 2, 3)(values, x)[0].sum())(x.detach().numpy())
    np.testing.assert_allclose(by_jax, bp.functional.vjp(saved, np.ones_like(y)).input, atol=1e-13)
