"""A recurrent layer keeps its bound passes over time for the last few batches and numbers of steps."""

from __future__ import annotations

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.layers import matrix_context
from bppsa_cupy.timescan import Stack
from bppsa_cupy.timescan.chunked import TimeScan


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Batch and steps of every stack that is bound."""
    found: list[tuple[int, int]] = []
    begin = Stack.__init__

    def counted(self, device, sizes, *others):
        found.append((sizes.walk.batch, sizes.walk.steps))
        begin(self, device, sizes, *others)

    monkeypatch.setattr(Stack, "__init__", counted)
    return found


def network() -> bp.Sequential:
    return bp.Sequential([bp.GRU(3, 5, 2, bias=False)], (None, 3), seed=0, dtype="float64", device="host")


def step(net: bp.Sequential, batch: int, steps: int, method: str = "auto") -> list[np.ndarray]:
    x = np.random.default_rng(batch * steps).standard_normal((batch, steps, 3))
    y = net.forward(x, into=net.last_pass)
    net.backward(np.cos(y), method=method)
    return [y.copy(), *(array.copy() for array in net.gradients.values())]


def test_an_epochs_last_batch_is_bound_once(made: list[tuple[int, int]]) -> None:
    net = network()
    shapes = [(6, 9), (6, 9), (4, 9), (6, 9), (4, 9), (6, 7), (4, 9), (6, 9), (6, 7)]
    found = [step(net, *shape, method) for shape in shapes for method in ("linear", "blelloch")]
    assert made == [(6, 9), (4, 9), (6, 7)]
    for ours, (shape, method) in zip(
        found, [(s, m) for s in shapes for m in ("linear", "blelloch")], strict=True
    ):
        for one, wanted in zip(ours, step(network(), *shape, method), strict=True):
            np.testing.assert_array_equal(one, wanted)


def test_larger_buffers_and_too_many_shapes_let_stacks_go(made: list[tuple[int, int]]) -> None:
    net = network()
    for batch in (8, 1, 2, 3, 8, 4, 1):  # the fifth shape drops that of one sample, used last long ago
        step(net, batch, 5)
    assert made == [(batch, 5) for batch in (8, 1, 2, 3, 4, 1)]
    made.clear()
    for batch in (9, 8):  # bound to larger buffers, and nothing is left on those that were too small
        step(net, batch, 5)
    assert made == [(9, 5), (8, 5)]


def test_stacks_whose_own_memory_is_large_are_not_kept(
    made: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = network()
    monkeypatch.setattr(TimeScan, "nbytes", 1 << 20)
    for batch in (4, 3, 4):
        step(net, batch, 9)
    assert made == [(4, 9), (3, 9), (4, 9)]


def test_where_memory_is_short_others_give_way(
    made: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = network()
    step(net, 4, 9)
    begin, refused = TimeScan.__init__, []

    def refuse_beside_others(self, *given, **options):
        if not refused:
            refused.append(True)
            raise bp.DeviceError("too little memory")
        begin(self, *given, **options)

    monkeypatch.setattr(TimeScan, "__init__", refuse_beside_others)
    step(net, 3, 9)
    assert refused and len(net.last_pass.layers[0].stacks) == 1
    refused.clear()
    net = network()
    with pytest.raises(bp.DeviceError, match="too little memory"):
        step(net, 4, 9)
    assert matrix_context.MOST_STACKS == 4
