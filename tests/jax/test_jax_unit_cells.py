"""Layers of cells without recurrent gates, in PyTorch and in JAX: the engine's results and derivatives."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from jax_cases import bj, jax
from marks import some, some_rows
from unit_cells import PARTLY, UNITS, sru_by_torch

import bppsa_cupy as bp
import bppsa_cupy.torch as bt

CELLS = {**UNITS, **PARTLY}


@pytest.mark.parametrize("name", some("turning", long=("peeping", "forgetful")))
def test_in_pytorch_and_jax(name: str) -> None:
    cell, _ = CELLS[name]
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


@pytest.mark.parametrize(
    "features, outputs", some_rows((3, "all"), (4, "last"), long=[(3, "last"), (4, "all")])
)
def test_sru_whose_gates_see_the_state_for_torch_and_jax(
    features: int, outputs: str, rng: np.random.Generator
) -> None:
    options = {"bidirectional": True, "v1": False, "outputs": outputs}
    module = bt.SRU(features, 4, 2, dtype=torch.float64, **options)
    layer = module.layer
    assert type(module) is bt.PeepholeSRU and type(layer) is bp.PeepholeSRU
    assert {n: tuple(p.shape) for n, p in module.state_dict().items()} == layer.parameter_shapes()
    x, first = rng.standard_normal((3, 9, features)), rng.standard_normal((4, 3, 4))
    lengths = np.array([9, 7, 2])
    given_x, c = (torch.tensor(value, requires_grad=True) for value in (x, first))
    leaves = dict(module.named_parameters())
    wanted, after = sru_by_torch(layer, leaves, given_x, torch.tensor(lengths), c)
    if outputs == "last":
        wanted = torch.cat([wanted[range(3), lengths - 1, :4], wanted[:, 0, 4:]], 1)
    by_y, by_after = rng.standard_normal(wanted.shape), rng.standard_normal(after.shape)
    asked = [given_x, c, *leaves.values()]
    expected = torch.autograd.grad([wanted, after], asked, [torch.tensor(by_y), torch.tensor(by_after)])

    pack = torch.nn.utils.rnn.pack_padded_sequence(given_x, torch.tensor(lengths), batch_first=True)
    y, found_after = module(pack, c)
    if outputs == "all":
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
    torch.testing.assert_close([y, found_after], [wanted, after], atol=1e-12, rtol=1e-12)
    found = torch.autograd.grad([y, found_after], asked, [torch.tensor(by_y), torch.tensor(by_after)])
    torch.testing.assert_close(found, expected, atol=1e-11, rtol=1e-11)
    assert torch.autograd.gradgradcheck(lambda x: module(x)[0], given_x[:1, :3].detach().requires_grad_())
    again = pickle.loads(pickle.dumps(module))
    torch.testing.assert_close(again(given_x, c)[0], module(given_x, c)[0])

    with jax.enable_x64(True):
        function = bj.SRU(features, 4, 2, **options)
        assert type(function) is bj.PeepholeSRU and function == copy.deepcopy(function)
        params = {n: p.detach().numpy() for n, p in leaves.items()}
        assert function.init(jax.random.key(0)).keys() == params.keys()
        run = jax.jit(lambda x, c, params: function(params, x, c, lengths=lengths))
        results, pull = jax.vjp(run, x, first, params)
        by_x, by_c, by_params = pull((by_y, by_after))
    np.testing.assert_allclose(results[0], wanted.detach(), atol=1e-12, rtol=1e-12)
    for value, own in zip([by_x, by_c, *(by_params[n] for n in params)], expected, strict=True):
        np.testing.assert_allclose(value, own, atol=1e-11, rtol=1e-11)
