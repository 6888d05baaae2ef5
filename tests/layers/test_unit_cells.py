"""Layers of cells without recurrent gates, and with some: passes are PyTorch's autograd of the same steps,
and products of Jacobians are P x P a unit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cell_reference import compare_with_autograd, walk_of_torch
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import some
from unit_cells import AFFINE, PARTLY, UNITS, sru_by_torch

import bppsa_cupy as bp

CELLS = {**UNITS, **PARTLY}
#: Cells that every run compiles.
QUICK = ("turning", "partly")
NAMES = some("turning", long=[name for name in UNITS if name != "turning"])


def by_torch(layer, step, values, x, lengths, first):
    """Outputs of a layer of one inner layer, by PyTorch."""
    sides = []
    for direction, end in enumerate(("", "_reverse")[: layer.directions]):
        own = [part[direction] for part in first]
        sides.append(
            walk_of_torch(
                step, values, f"_l0{end}", x, lengths, layer.state_count, layer.unit_parameters, bool(end),
                own, layer.hidden_size,
            )
        )  # fmt: skip
    return torch.cat(sides, 2)


@pytest.mark.parametrize("names", some(QUICK, long=[tuple(CELLS)]), ids=len)
@settings(max_examples=25)
@given(st.data())
def test_passes_are_those_of_autograd(names: tuple[str, ...], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(names))
    cell, step = CELLS[name]
    ways = ["auto", "serial"] + (
        ["chunked"] if name in AFFINE else ["newton"] if data.draw(st.booleans()) else []
    )
    layer = bp.CellLayer(
        cell, 3, data.draw(st.integers(1, 5)), bidirectional=data.draw(st.booleans()),
        forward_method=data.draw(st.sampled_from(ways)),
    )  # fmt: skip
    batch, steps = data.draw(st.integers(1, 18)), data.draw(st.sampled_from([1, 2, 7, 13, 31]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    parameters = {n: rng.standard_normal(shape) / 2 for n, shape in layer.parameter_shapes().items()}
    x = rng.standard_normal((batch, steps, 3))
    lengths = rng.integers(1, steps + 1, batch) if data.draw(st.booleans()) else np.full(batch, steps)
    shape = layer.directions, batch, layer.hidden_size
    first = tuple(rng.standard_normal(shape) for _ in range(layer.state_count))

    y, saved = bp.functional.forward(
        layer, parameters, x, lengths=lengths, states=first if len(first) > 1 else first[0]
    )
    leaf = lambda value: torch.tensor(value, requires_grad=True)  # noqa: E731
    leaves, given_x, states = {n: leaf(v) for n, v in parameters.items()}, leaf(x), [*map(leaf, first)]
    wanted = by_torch(layer, step, leaves, given_x, torch.tensor(lengths), states)
    np.testing.assert_allclose(y, wanted.detach(), atol=1e-12, rtol=1e-12)

    by_y = rng.standard_normal(y.shape)
    (wanted * torch.tensor(by_y)).sum().backward()
    found = bp.functional.vjp(saved, by_y, method=data.draw(st.sampled_from(["auto", "bp", "blelloch"])))
    for n, own in leaves.items():
        np.testing.assert_allclose(found.parameters[n], own.grad, atol=1e-11, rtol=1e-11, err_msg=n)
    np.testing.assert_allclose(found.input, given_x.grad, atol=1e-12, rtol=1e-11)
    by_first = found.states if isinstance(found.states, tuple) else (found.states,)
    for ours, theirs in zip(by_first, states, strict=True):
        np.testing.assert_allclose(ours, theirs.grad, atol=1e-12, rtol=1e-11)


@pytest.mark.parametrize("name", some("partly", long=["forgetful"]))
def test_heads_of_cells_with_some_recurrent_gates(name: str) -> None:
    cell, step = PARTLY[name]
    net = bp.Sequential([bp.CellLayer(cell, 3, 4, heads=2)], (7, 3), dtype="float64", device="host")
    assert net.layers[0].parameter_shapes()["weight_hh_l0"] == (8, 2)
    compare_with_autograd(net, step, batch=3, steps=7, ragged=True)


@pytest.mark.parametrize("name", NAMES)
def test_ways_are_told_and_others_refused_by_name(name: str) -> None:
    cell, _ = UNITS[name]
    scanned = "chunked" if name in AFFINE else "newton"
    for forward, back in (("serial", "bp"), (scanned, "hybrid")):
        layer = bp.CellLayer(cell, 2, 3, forward_method=forward)
        assert "weight_hh_l0" not in layer.parameter_shapes() and "heads" not in repr(layer)
        parameters = layer.initialize(np.random.default_rng(0))
        y, saved = bp.functional.forward(layer, parameters, np.ones((2, 101, 2)))
        bp.functional.vjp(saved, y, method=back)
        assert saved.forward_ways[0].startswith(f"l0: {forward}"), saved.forward_ways
        told = saved.backward_ways[0]
        assert told.startswith("l0: serial" if back == "bp" else "l0: chunked"), told
    refused = "newton" if name in AFFINE else "chunked"
    with pytest.raises(bp.ShapeError, match=f"forward_method='{refused}': it takes 'auto', 'serial', "):
        bp.CellLayer(cell, 2, 3, forward_method=refused)
    with pytest.raises(bp.ShapeError, match="got heads=3, and its cell has no recurrent gates"):
        bp.CellLayer(cell, 2, 3, heads=3)


@pytest.mark.parametrize("name", NAMES)
def test_records_are_blocks_of_each_unit_and_the_derivatives_of_states(name: str) -> None:
    cell, _ = UNITS[name]
    H, P = 3, len(cell.states)
    net = bp.Sequential([bp.CellLayer(cell, 2, H)], (5, 2), dtype="float64", device="host")
    rng = np.random.default_rng(0)
    x, first = rng.standard_normal((2, 5, 2)), tuple(rng.standard_normal((1, 2, H)) for _ in range(P))

    def last(states):
        net.forward(x, states=states if P > 1 else states[0], lengths=np.array([5, 3]))
        found = net.last_pass.states[0]
        return np.concatenate([part[0] for part in (found if P > 1 else (found,))], axis=1)

    last(first)
    records = list(net.transposed_jacobians())
    rows, columns = records[0].to_scipy(0).nonzero()
    assert len(records) == 5 and (rows % H == columns % H).all() and records[0].pattern.nnz <= P * P * H
    product = np.eye(P * H)
    for record in records:
        product = product @ record.to_scipy(1).toarray()
    for row in range(P * H):
        moved = [part.copy() for part in first]
        moved[row // H][0, 1, row % H] += 1e-6
        slope = (last(tuple(moved)) - last(first))[1] / 1e-6
        np.testing.assert_allclose(product[row], slope, rtol=1e-5, atol=1e-8)
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


@pytest.mark.parametrize("features", some(3, long=[4]))
def test_sru_whose_gates_see_the_state(features: int, rng: np.random.Generator) -> None:
    layer = bp.SRU(features, 4, 2, bidirectional=features == 4, v1=False, forward_method="newton")
    assert type(layer) is bp.PeepholeSRU and layer.parameter_shapes()["bias_ih_l0"] == (8,)
    assert layer.parameter_shapes()["weight_ih_l0"] == ((12, 4) if features == 4 else (16, 3))
    parameters = {n: rng.standard_normal(shape) for n, shape in layer.parameter_shapes().items()}
    x, lengths = rng.standard_normal((3, 13, features)), np.array([13, 1, 8])
    first = rng.standard_normal((2 * layer.directions, 3, 4))
    leaf = lambda value: torch.tensor(value, requires_grad=True)  # noqa: E731
    leaves, given_x, c = {n: leaf(v) for n, v in parameters.items()}, leaf(x), leaf(first)
    wanted, after = sru_by_torch(layer, leaves, given_x, torch.tensor(lengths), c)

    y, saved = bp.functional.forward(layer, parameters, x, lengths=lengths, states=first)
    np.testing.assert_allclose(y, wanted.detach(), atol=1e-12, rtol=1e-12)
    np.testing.assert_allclose(saved.states, after.detach(), atol=1e-12, rtol=1e-12)
    by_y, by_after = rng.standard_normal(y.shape), rng.standard_normal(first.shape)
    ((wanted * torch.tensor(by_y)).sum() + (after * torch.tensor(by_after)).sum()).backward()
    found = bp.functional.vjp(saved, by_y, state_gradients=by_after, method="blelloch")
    for n, own in leaves.items():
        np.testing.assert_allclose(found.parameters[n], own.grad, atol=1e-11, rtol=1e-11, err_msg=n)
    np.testing.assert_allclose(found.input, given_x.grad, atol=1e-12, rtol=1e-11)
    np.testing.assert_allclose(found.states, c.grad, atol=1e-12, rtol=1e-11)


def test_sru_of_either_kind_is_made_again_and_told_apart() -> None:
    for v1, kind in ((True, bp.SRU), (False, bp.PeepholeSRU)):
        layer = bp.SRU(3, 4, v1=v1)
        assert type(layer) is kind
    config = {name: value for name, value in layer.config().items() if name not in ("cell", "digest")}
    assert repr(bp.PeepholeSRU(**config)) == repr(layer)
    with pytest.raises(bp.ShapeError, match="it takes 'auto', 'serial', 'newton', 'quasi-newton'"):
        bp.SRU(3, 4, v1=False, forward_method="chunked")
