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


def test_a_layout_that_changes_between_calls() -> None:
    modules = pair("LSTM", 4, 3, 2, bidirectional=True)
    for batch_first in (False, True, False):
        for each in modules:
            each.batch_first = batch_first
        assert_same(*(flat(each(X)) for each in modules))


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


def test_zeros_for_the_first_state_change_nothing() -> None:
    for kind, count in (("GRU", 1), ("LSTM", 2)):
        module = getattr(ours, kind)(4, 3).double()
        zeros = [torch.zeros(1, 2, 3, dtype=torch.float64) for _ in range(count)]
        results = [flat(module(X)), flat(module(X, zeros[0] if count == 1 else tuple(zeros)))]
        found = [gradients(module, result) for result in results]
        for first, second in zip((*results[0], *found[0]), (*results[1], *found[1]), strict=True):
            assert torch.equal(first, second)


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
