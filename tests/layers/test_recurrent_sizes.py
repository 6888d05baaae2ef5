"""Layers of every cell at widths, batches and heads that go every way of the host: PyTorch's values."""

from __future__ import annotations

from functools import partial

import pytest
from cell_reference import MAKES, compare_with_autograd
from hypothesis import example, given, settings
from hypothesis import strategies as st
from recurrent_reference import compare

import bppsa_cupy as bp

pytestmark = pytest.mark.long

HIDDEN, BATCH = (1, 20, 33, 64, 65, 100, 129, 300, 640, 900, 1024), (1, 4, 7, 16, 33)
CELLS = {
    "rnn": (bp.RNN, compare),
    "rnn relu": (partial(bp.RNN, nonlinearity="relu"), compare),
    "gru": (bp.GRU, compare),
    "lstm": (bp.LSTM, compare),
    **{name: (make, partial(compare_with_autograd, step=step)) for name, (make, step) in MAKES.items()},
}


def divisors(hidden: int) -> list[int]:
    """How many heads a layer of so many units may have."""
    return [heads for heads in range(1, hidden + 1) if hidden % heads == 0]


@pytest.mark.parametrize("name", CELLS)
@settings(max_examples=6)
@given(
    sizes=st.sampled_from(HIDDEN).flatmap(lambda h: st.tuples(st.just(h), st.sampled_from(divisors(h)))),
    batch=st.sampled_from(BATCH),
    dtype=st.sampled_from(["float32", "float64"]),
    ragged=st.booleans(),
)
@example(sizes=(1024, 1), batch=1, dtype="float32", ragged=False)
@example(sizes=(300, 1), batch=33, dtype="float32", ragged=True)
@example(sizes=(129, 1), batch=7, dtype="float64", ragged=True)
def test_sizes(name, sizes, batch, dtype, ragged):
    make, compared = CELLS[name]
    hidden, heads = sizes
    net = bp.Sequential([make(3, hidden, heads=heads)], (4, 3), dtype=dtype, device="host")
    compared(net, batch=batch, steps=4, ragged=ragged)
