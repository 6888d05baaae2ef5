"""`bppsa_cupy.torch`: results and gradients are torch.nn's, in every setting of its arguments."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from marks import some
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence
from torch_cases import assert_same, flat, gradients, pair

import bppsa_cupy as bp
import bppsa_cupy.torch as ours

KINDS = ("RNN", "GRU", "LSTM")


def state_of(kind: str, *shape: int, dtype: torch.dtype = torch.float64) -> Any:
    parts = [torch.randn(*shape, dtype=dtype, requires_grad=True) for _ in range(2 if kind == "LSTM" else 1)]
    return tuple(parts) if kind == "LSTM" else parts[0]


def parts_of(state: Any) -> tuple[torch.Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


@pytest.mark.parametrize("dtype", some(torch.float64, long=[torch.float32]), ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_every_argument(kind: str, dtype: torch.dtype) -> None:
    for layers, bias, batch_first, both in itertools.product((1, 2), *[(False, True)] * 3):
        options = {"num_layers": layers, "bias": bias, "batch_first": batch_first, "bidirectional": both}
        modules = pair(kind, 3, 4, dtype=dtype, **options)
        x = torch.randn(5, 6, 3, dtype=dtype, requires_grad=True)
        batch = 5 if batch_first else 6
        state = state_of(kind, layers * (1 + both), batch, 4, dtype=dtype)
        for inputs in ((x,), (x, state)):
            tensors = [x, *(parts_of(inputs[1]) if len(inputs) > 1 else ())]
            results = [flat(module(*inputs)) for module in modules]
            assert_same(*results)
            assert_same(*(gradients(m, r, *tensors) for m, r in zip(modules, results, strict=True)))


@pytest.mark.parametrize("kinds", some(KINDS, long=[("relu",)]), ids=str)
@given(
    st.data(), st.integers(1, 9), st.integers(1, 4), st.integers(1, 5),
    st.integers(1, 6), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_packs_of_any_lengths(
    kinds: tuple[str, ...], data: st.DataObject, steps: int, batch: int, features: int, hidden: int,
    both: bool, sort: bool, given_state: bool,
) -> None:  # fmt: skip
    kind = data.draw(st.sampled_from(kinds))
    options = {"nonlinearity": "relu"} if kind == "relu" else {}
    kind = "RNN" if kind == "relu" else kind
    modules = pair(kind, features, hidden, 2, bidirectional=both, **options)
    lengths = torch.randint(1, steps + 1, (batch,))
    if sort:
        lengths = lengths.sort(descending=True).values
    x = torch.randn(steps, batch, features, dtype=torch.float64, requires_grad=True)
    state = state_of(kind, 2 * (1 + both), batch, hidden) if given_state else None
    results = []
    for module in modules:
        pack = pack_padded_sequence(x, lengths, enforce_sorted=sort)
        y, after = module(pack, state)
        assert isinstance(y, PackedSequence)
        assert all(a is b for a, b in zip(y[1:], pack[1:], strict=True))
        results.append(flat((y, after)))
    assert_same(*results)
    tensors = [x, *(parts_of(state) if given_state else ())]
    assert_same(*(gradients(m, r, *tensors) for m, r in zip(modules, results, strict=True)))


@pytest.mark.parametrize("name", some("gru", long=("rnn_tanh", "lstm")))
def test_modules_of_cells_are_the_layers(name: str) -> None:
    cell = bp.Cell.built_in(name)
    module = ours.CellLayer(cell, 3, 5, 2, batch_first=True, bidirectional=True).double()
    layer = bp.CellLayer(cell, 3, 5, 2, bidirectional=True)
    values = {key: parameter.detach().numpy() for key, parameter in module.named_parameters()}
    x = torch.randn(2, 7, 3, dtype=torch.float64, requires_grad=True)
    results = flat(module(x))
    y, saved = bp.functional.forward(layer, values, x.detach())
    assert_same([t.detach() for t in results], [torch.tensor(a) for a in (y, *parts_of(saved.states))])
    grad = torch.randn_like(results[0])
    gradients = torch.autograd.grad(results[0], [x, *module.parameters()], grad)
    expected = bp.functional.vjp(saved, grad)
    assert_same(list(gradients), [torch.tensor(a) for a in (expected.input, *expected.parameters.values())])
    if name in ("gru", "lstm"):
        theirs = getattr(torch.nn, name.upper())(3, 5, 2, batch_first=True, bidirectional=True).double()
        theirs.load_state_dict(module.state_dict())
        assert_same([t.detach() for t in results], [t.detach() for t in flat(theirs(x))])


def test_one_sequence_without_a_batch_and_arrays_that_are_not_contiguous() -> None:
    for theirs, module in (pair("LSTM", 3, 4, 2), pair("GRU", 3, 4, batch_first=True)):
        x = torch.randn(3, 8, dtype=torch.float64).T.requires_grad_()
        results = [flat(m(x)) for m in (theirs, module)]
        assert results[1][0].shape == (8, 4)
        assert_same(*results)
        assert_same(*(gradients(m, r, x) for m, r in zip((theirs, module), results, strict=True)))
