"""Resets inside of sequences: one pass is the loop over steps that sets states to zero."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from marks import some
from torch_cases import assert_same, flat, gradients, pair


def parts_of(state: Any) -> tuple[torch.Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


def loop(module: torch.nn.Module, x: torch.Tensor, state: Any, resets: torch.Tensor) -> list[torch.Tensor]:
    """sb3-contrib's `_process_sequence`: a call for each step, of (T, B, F)."""
    outputs = []
    for step, starts in zip(x, resets, strict=True):
        alive = (1.0 - starts.to(x.dtype)).view(1, -1, 1)
        hidden = tuple(alive * part for part in parts_of(state))
        y, state = module(step[None], hidden if len(hidden) == 2 else hidden[0])
        outputs.append(y)
    return [torch.cat(outputs), *parts_of(state)]


def states_of(kind: str, *shape: int) -> Any:
    parts = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    return tuple(parts) if kind == "LSTM" else parts[0]


@pytest.mark.parametrize("kind", some("GRU", "LSTM", long=["RNN"]))
@given(
    st.integers(1, 9), st.integers(1, 4), st.integers(1, 2),
    st.floats(0, 1), st.booleans(),
)  # fmt: skip
def test_one_pass_is_the_loop(
    kind: str, steps: int, batch: int, layers: int, share: float, batch_first: bool
) -> None:
    theirs, module = pair(kind, 3, 4, layers)
    x = torch.randn(steps, batch, 3, dtype=torch.float64, requires_grad=True)
    resets = torch.rand(steps, batch) < share
    state = states_of(kind, layers, batch, 4)
    expected = loop(theirs, x, state, resets)
    module.batch_first = batch_first
    arguments = (x.transpose(0, 1), state, resets.T) if batch_first else (x, state, resets)
    y, *after = flat(module(*arguments))
    results = [y.transpose(0, 1) if batch_first else y, *after]
    assert_same(results, expected)
    tensors = [x, *parts_of(state)]
    assert_same(gradients(module, results, *tensors), gradients(theirs, expected, *tensors))


def test_first_states_of_both_directions() -> None:
    theirs, module = pair("GRU", 3, 4, bidirectional=True)
    x, resets = torch.randn(5, 2, 3, dtype=torch.float64), torch.zeros(5, 2, dtype=torch.bool)
    state = torch.randn(2, 2, 4, dtype=torch.float64)
    assert_same(flat(module(x, state, resets)), flat(theirs(x, state)))
    resets[2] = True
    y, after = module(x, state, resets)
    forward, backward = state.clone(), state.clone()
    forward[1], backward[0] = 0, 0
    first, second = theirs(x[:2], forward), theirs(x[2:], backward)
    assert_same([y, after], [torch.cat([first[0], second[0]]), torch.stack([second[1][0], first[1][1]])])
