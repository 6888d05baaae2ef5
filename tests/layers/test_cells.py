"""Layers of any cell, with recurrent gates or with some: passes are PyTorch's autograd of the same
steps, products of Jacobians are the derivatives of states."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from cell_cases import PARTLY, SLOW, every_function_cell
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import some, some_rows
from recurrent_reference import compare

import bppsa_cupy as bp

#: How to make a layer of each cell.
CELLS = {name: partial(bp.CellLayer, cell) for name, cell in {"slow": SLOW, **PARTLY}.items()}
#: Cells that every run compiles.
QUICK = ("partly",)


@pytest.mark.parametrize("names, largest", some_rows((QUICK, 3), long=[(tuple(CELLS), 18)]), ids=str)
@settings(max_examples=40)
@given(st.data())
def test_passes_are_those_of_autograd(names: tuple[str, ...], largest: int, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(names))
    layer = CELLS[name](
        3, data.draw(st.integers(1, 15)), data.draw(st.integers(1, 2)),
        bidirectional=data.draw(st.booleans()), outputs=data.draw(st.sampled_from(["all", "last"])),
        forward_method=data.draw(st.sampled_from(["auto", "serial", "newton"])),
    )  # fmt: skip
    batch, steps = data.draw(st.integers(1, largest)), data.draw(st.sampled_from([1, 2, 7, 13, 31]))
    net = bp.Sequential(
        [layer], (steps, 3), dtype="float64", device="host", seed=data.draw(st.integers(0, 99))
    )
    method = data.draw(st.sampled_from(["auto", "bp", "blelloch"]))
    compare(net, batch, steps, data.draw(st.booleans()), method=method)


@pytest.mark.parametrize("name", some(*QUICK, long=[name for name in CELLS if name not in QUICK]))
def test_records_are_the_derivatives_of_states(name: str) -> None:
    layer = CELLS[name](2, 3)
    H, P = 3, layer.state_count
    net = bp.Sequential([layer], (5, 2), dtype="float64", device="host")
    rng = np.random.default_rng(0)
    x, first = rng.standard_normal((2, 5, 2)), tuple(rng.standard_normal((1, 2, H)) for _ in range(P))

    def last(states):
        net.forward(x, states=states if P > 1 else states[0], lengths=np.array([5, 3]))
        final = net.last_pass.states[0]
        return np.concatenate([part[0] for part in (final if P > 1 else (final,))], axis=1)

    last(first)
    records = list(net.transposed_jacobians())
    assert len(records) == 5
    product = np.eye(P * H)
    for record in records:
        product = product @ record.to_scipy(1).toarray()
    for row in range(P * H):
        moved = [[part.copy() for part in first] for _ in range(2)]
        for sign, parts in zip((1, -1), moved, strict=True):
            parts[row // H][0, 1, row % H] += sign * 1e-6
        slope = (last(tuple(moved[0])) - last(tuple(moved[1])))[1] / 2e-6
        np.testing.assert_allclose(product[row], slope, rtol=1e-6, atol=1e-8)
    if name == "partly":
        exponents = bp.lyapunov_exponents(records)
        determinants = [
            np.mean([np.linalg.slogdet(record.to_scipy(b).toarray())[1] for record in records[:end]])
            for b, end in enumerate((5, 3))
        ]
        np.testing.assert_allclose(exponents.sum(1), determinants, rtol=1e-9)


@pytest.mark.parametrize("make", some(lambda: PARTLY["partly"], long=[every_function_cell]))
def test_kernels_give_what_the_host_gives(make, emulated) -> None:
    layer, rng = bp.CellLayer(make(), 3, 5, forward_method="serial"), np.random.default_rng(1)
    x, gradient = rng.standard_normal((2, 7, 3)), rng.standard_normal((2, 7, 5))
    results = []
    for device in (emulated, "host"):
        net = bp.Sequential([layer], (7, 3), dtype="float64", device=device, seed=0)
        y = net.forward(x, lengths=[7, 4]).copy()
        by_input = net.backward(gradient, "bp", input_gradient=True)
        results.append([y, by_input, *net.gradients.values()])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12)
