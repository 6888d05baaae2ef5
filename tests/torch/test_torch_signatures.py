"""Calls of a module that look alike and are not: nothing is taken over from the last one that differs."""

from __future__ import annotations

import pytest
import torch
from torch_cases import assert_same, flat, gradients, pair

import bppsa_cupy as bp
import bppsa_cupy.torch as ours

X = torch.linspace(-1, 1, 5 * 2 * 4, dtype=torch.float64).reshape(5, 2, 4)


def test_a_parameter_on_the_same_memory_in_another_order() -> None:
    theirs, module = pair("RNN", 4, 4)
    module(X)[0].sum().backward()
    for each in (theirs, module):
        each.weight_hh_l0.data = each.weight_hh_l0.data.t()
    assert_same(*(flat(each(X)) for each in (theirs, module)))
    assert_same(*(gradients(each, flat(each(X))) for each in (theirs, module)))


def test_a_parameter_on_the_same_memory_in_another_shape() -> None:
    module = ours.GRU(4, 4).double()
    module(X)
    module.weight_hh_l0.data = module.weight_hh_l0.data.view(4, 12)
    with pytest.raises(bp.ShapeError, match=r"got weight_hh_l0 of float64 and shape \(4, 12\)"):
        module(X)


def test_a_dropout_that_is_set_between_calls() -> None:
    modules = pair("GRU", 4, 3, 2)
    for p in (0.0, 0.5, 0, 1.0):
        results = []
        for each in modules:
            each.dropout = p
            torch.manual_seed(0)
            results.append(flat(each(X)))
        assert_same(*results)
    modules[1].dropout = True
    with pytest.raises(bp.ArgumentError):
        modules[1](X)


def test_a_tensor_that_torch_func_has_left_behind() -> None:
    theirs, module = pair("GRU", 4, 3)
    left: list[torch.Tensor] = []

    def double(x: torch.Tensor) -> torch.Tensor:
        left.append(2 * x)
        return (2 * x).sum()

    torch.func.grad(double)(X)
    assert_same(*(flat(each(left[0])) for each in (theirs, module)))


def test_gradients_by_first_states_behind_a_pass_without() -> None:
    modules = pair("GRU", 4, 3)
    state = torch.full((1, 2, 3), 0.25, dtype=torch.float64, requires_grad=True)
    for each in modules:
        each(X)[0].sum().backward()
    assert_same(*(gradients(each, flat(each(X, state)), state) for each in modules))
