"""Layers of any cell, with recurrent gates, without, and with some: passes are PyTorch's autograd of the same
steps, products of Jacobians are the derivatives of states."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cell_reference import MAKES, compare_with_autograd, walk_of_torch
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import some
from unit_cells import AFFINE, PARTLY, UNITS

import bppsa_cupy as bp

#: How to make a layer of each cell, and the cell's step in PyTorch.
CELLS = MAKES | {
    name: (lambda *sizes, cell=cell, **options: bp.CellLayer(cell, *sizes, **options), step)
    for name, (cell, step) in (UNITS | PARTLY).items()
}
#: Cells that every run compiles.
QUICK = ("turning", "partly", "slow")


def by_torch(layer, step, values, x, lengths, first):
    """Outputs of a layer, by PyTorch."""
    for number in range(layer.num_layers):
        sides = []
        for direction, end in enumerate(("", "_reverse")[: layer.directions]):
            own = [part[number * layer.directions + direction] for part in first]
            place = f"_l{number}{end}", x, lengths, layer.state_count, layer.unit_parameters, bool(end)
            sides.append(walk_of_torch(step, values, *place, own, layer.hidden_size))
        x = torch.cat(sides, 2)
    return x


@pytest.mark.parametrize("names", some(QUICK, long=[tuple(CELLS)]), ids=len)
@settings(max_examples=40)
@given(st.data())
def test_passes_are_those_of_autograd(names: tuple[str, ...], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(names))
    make, step = CELLS[name]
    scanned = "chunked" if name in AFFINE else data.draw(st.sampled_from(["newton", "quasi-newton"]))
    layer = make(
        3, data.draw(st.integers(1, 5)), data.draw(st.integers(1, 2)), bidirectional=data.draw(st.booleans()),
        forward_method=data.draw(st.sampled_from(["auto", "serial", scanned])),
    )  # fmt: skip
    batch, steps = data.draw(st.integers(1, 18)), data.draw(st.sampled_from([1, 2, 7, 13, 31]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    parameters = {n: rng.standard_normal(shape) / 2 for n, shape in layer.parameter_shapes().items()}
    x = rng.standard_normal((batch, steps, 3))
    lengths = rng.integers(1, steps + 1, batch) if data.draw(st.booleans()) else np.full(batch, steps)
    shape = layer.num_layers * layer.directions, batch, layer.hidden_size
    first = tuple(rng.standard_normal(shape) for _ in range(layer.state_count))

    y, saved = bp.functional.forward(
        layer, parameters, x, lengths=lengths, states=first if len(first) > 1 else first[0]
    )
    leaf = lambda value: torch.tensor(value, requires_grad=True)  # noqa: E731
    leaves, given_x, states = {n: leaf(v) for n, v in parameters.items()}, leaf(x), [*map(leaf, first)]
    wanted = by_torch(layer, step, leaves, given_x, torch.tensor(lengths), states)
    np.testing.assert_allclose(y, wanted.detach(), atol=1e-12, rtol=1e-11)

    by_y = rng.standard_normal(y.shape)
    (wanted * torch.tensor(by_y)).sum().backward()
    found = bp.functional.vjp(saved, by_y, method=data.draw(st.sampled_from(["auto", "bp", "blelloch"])))
    for n, own in leaves.items():
        np.testing.assert_allclose(found.parameters[n], own.grad, atol=1e-10, rtol=1e-10, err_msg=n)
    np.testing.assert_allclose(found.input, given_x.grad, atol=1e-11, rtol=1e-10)
    by_first = found.states if isinstance(found.states, tuple) else (found.states,)
    for ours, theirs in zip(by_first, states, strict=True):
        np.testing.assert_allclose(ours, theirs.grad, atol=1e-11, rtol=1e-10)


@pytest.mark.parametrize("name", some("partly", long=["forgetful", *MAKES]))
def test_heads_see_themselves_alone(name: str) -> None:
    make, step = CELLS[name]
    net = bp.Sequential([make(3, 6, heads=3)], (7, 3), dtype="float64", device="host")
    compare_with_autograd(net, step, batch=3, steps=7, ragged=True)


@pytest.mark.parametrize("name", some("turning", long=[name for name in UNITS if name != "turning"]))
def test_ways_are_told_and_others_refused(name: str) -> None:
    cell, _ = UNITS[name]
    scanned = "chunked" if name in AFFINE else "newton"
    for forward, back in (("serial", "bp"), (scanned, "hybrid")):
        layer = bp.CellLayer(cell, 2, 3, forward_method=forward)
        assert "weight_hh_l0" not in layer.parameter_shapes() and "heads" not in repr(layer)
        y, saved = bp.functional.forward(
            layer, layer.initialize(np.random.default_rng(0)), np.ones((2, 101, 2))
        )
        bp.functional.vjp(saved, y, method=back)
        assert saved.forward_ways[0].startswith(f"l0: {forward}"), saved.forward_ways
        assert saved.backward_ways[0].startswith("l0: serial" if back == "bp" else "l0: chunked")
    refused = "newton" if name in AFFINE else "chunked"
    for options, named in (({"forward_method": refused}, refused), ({"heads": 3}, "heads=3")):
        with pytest.raises(bp.ShapeError, match=named):
            bp.CellLayer(cell, 2, 3, **options)
    with pytest.raises(bp.ShapeError, match="str"):
        bp.CellLayer("gru", 3, 5)


@pytest.mark.parametrize("name", some(*QUICK, long=[name for name in CELLS if name not in QUICK]))
def test_records_are_the_derivatives_of_states(name: str) -> None:
    layer = CELLS[name][0](2, 3)
    H, P = 3, layer.state_count
    net = bp.Sequential([layer], (5, 2), dtype="float64", device="host")
    rng = np.random.default_rng(0)
    x, first = rng.standard_normal((2, 5, 2)), tuple(rng.standard_normal((1, 2, H)) for _ in range(P))

    def last(states):
        net.forward(x, states=states if P > 1 else states[0], lengths=np.array([5, 3]))
        found = net.last_pass.states[0]
        return np.concatenate([part[0] for part in (found if P > 1 else (found,))], axis=1)

    last(first)
    records = list(net.transposed_jacobians())
    assert len(records) == 5
    if name in UNITS:
        rows, columns = records[0].to_scipy(0).nonzero()
        assert (rows % H == columns % H).all() and records[0].pattern.nnz <= P * P * H
    product = np.eye(P * H)
    for record in records:
        product = product @ record.to_scipy(1).toarray()
    for row in range(P * H):
        moved = [[part.copy() for part in first] for _ in range(2)]
        for sign, parts in zip((1, -1), moved, strict=True):
            parts[row // H][0, 1, row % H] += sign * 1e-6
        slope = (last(tuple(moved[0])) - last(tuple(moved[1])))[1] / 2e-6
        np.testing.assert_allclose(product[row], slope, rtol=1e-6, atol=1e-8)
    if name == "turning":
        exponents = bp.lyapunov_exponents(records)
        determinants = [
            np.mean([np.linalg.slogdet(record.to_scipy(b).toarray())[1] for record in records[:end]])
            for b, end in enumerate((5, 3))
        ]
        np.testing.assert_allclose(exponents.sum(1), determinants, rtol=1e-9)


def test_states_beyond_the_range_are_those_of_the_serial_pass() -> None:
    cell = UNITS["turning"][0]
    found = {}
    for method in ("serial", "chunked"):
        layer = bp.CellLayer(cell, 1, 2, forward_method=method)
        parameters = {n: np.ones(shape) for n, shape in layer.parameter_shapes().items()}
        parameters["w_l0"][...] = 1e20
        with np.errstate(all="ignore"):
            found[method], saved = bp.functional.forward(layer, parameters, np.ones((1, 64, 1)))
    assert "not finite: run serially" in saved.forward_ways[0]
    np.testing.assert_array_equal(found["chunked"], found["serial"])
