"""What Newton's iteration promises of every sample's states, by their own size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from newton_cases import blank
from newton_walks import draw_walk, excess, largest, walk_by_newton
from timescan_cases import CELLS, make_walk

import bppsa_cupy as bp
from bppsa_cupy.devices import get_device
from bppsa_cupy.processors import models
from bppsa_cupy.timescan import serial
from bppsa_cupy.timescan.newton import NewtonForward

SIZES = st.floats(-8, 3).map(lambda power: 10.0**power)


@pytest.fixture
def many_chunks(monkeypatch):
    """The cost model of a GPU on the host, by which passes are cut into many chunks."""
    monkeypatch.setitem(models.MODELS, "host", models.MODELS["cuda"])
    monkeypatch.setattr(type(get_device("host")), "workers", 132)


def scaled(walk, sizes):
    """The walk with each sample's input and initial state times its size, walked serially."""
    for array in (walk.projected, walk.initial):
        array[...] *= np.asarray(sizes, array.dtype)
    walk.bias_hh[...] = 0
    with np.errstate(over="ignore", invalid="ignore"):
        serial.forward(get_device("host"), walk)()
    return walk


def assert_promised(ours, walk, chunk, report):
    """What `excess` tells of boundaries; where these did not settle, what Jacobians make of it in chunks."""
    assert excess(ours, walk, chunk, report) <= 1
    if report.error:
        error, size = largest(walk, ours.state - walk.state), largest(walk, walk.state)
        assert (error.max(0) <= 100 * report.tolerance * size.max(0)).all()


@pytest.mark.parametrize("indices", [range(40 * k, 40 * k + 40) for k in range(4)])
def test_random_walks_keep_what_is_promised(indices):
    """`python tools/instruments/checks/newton.py` walks more of them."""
    names, converged = tuple(form.name for form in CELLS.values()), 0
    for index in indices:
        drawn = draw_walk(1, index, names)
        ours, report = walk_by_newton(drawn)
        assert excess(ours, drawn.walk, drawn.chunk, report) <= 1, f"walk {index}: {report}"
        converged += report.converged
    assert converged > len(indices) / 2


@pytest.mark.parametrize("seed", [34, 146, 154])
def test_states_beyond_the_range_do_not_count_as_converged(seed):
    """A finite mismatch is nothing beside an infinite state, or a product of Jacobians that is."""
    rng = np.random.default_rng(seed)
    steps, host = int(rng.integers(3, 30)), get_device("host")
    walk = make_walk(host, CELLS["relu"], steps, 1, 1, dtype="float32", forward=False)
    walk.weight_hh[...] = 1e4 * rng.choice([-1, 1])
    walk.projected[...] = rng.standard_normal(walk.projected.shape) * 10 ** rng.uniform(25, 36)
    walk.initial[...] = 0
    walk = scaled(walk, [1.0])
    ours = blank(host, walk)
    NewtonForward(host, ours, int(rng.integers(1, 4)))()
    np.testing.assert_array_equal(ours.state, walk.state)


@pytest.mark.parametrize("cell", CELLS)
@given(
    sizes=st.lists(SIZES, min_size=2, max_size=2),
    radius=st.floats(-1, np.log10(2)).map(lambda power: 10.0**power),
    dtype=st.sampled_from(["float32", "float64"]),
    steps=st.sampled_from([64, 150]),
    chunk=st.sampled_from([1, 4, 7]),
    ragged=st.booleans(),
    reverse=st.booleans(),
    diagonal=st.booleans(),
)
@example(
    sizes=[1.0, 1.144441900797323], radius=1.144441900797323, dtype="float32", steps=150, chunk=1,
    ragged=False, reverse=False, diagonal=False,
)  # fmt: skip
def test_every_sample_is_within_the_tolerance_of_its_own_size(
    cell, sizes, radius, dtype, steps, chunk, ragged, reverse, diagonal
):
    host = get_device("host")
    walk = make_walk(
        host, CELLS[cell], steps, 5, 2, radius=radius, dtype=dtype, ragged=ragged, reverse=reverse,
        forward=False,
    )  # fmt: skip
    walk = scaled(walk, sizes)
    ours = blank(host, walk)
    newton = NewtonForward(host, ours, chunk, diagonal=diagonal)
    newton()
    if newton.report.converged:
        assert_promised(ours, walk, chunk, newton.report)
    else:
        np.testing.assert_array_equal(ours.state, walk.state)
        np.testing.assert_array_equal(ours.final, walk.final)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("size", [0.0, 1e-42, 1e-30, 1e-6])
def test_small_inputs_are_not_taken_for_none(cell, size):
    """Where every state but 0 is below the smallest normal number, 0 is within the tolerance."""
    host = get_device("host")
    walk = make_walk(host, CELLS[cell], 120, 6, 2, dtype="float32", forward=False)
    walk = scaled(walk, [size, size])
    ours = blank(host, walk)
    newton = NewtonForward(host, ours, 6)
    newton()
    assert newton.report.converged and newton.report.chunks == 20
    assert_promised(ours, walk, 6, newton.report)


def test_expanding_dynamics_are_judged_by_the_states_error_not_by_the_mismatch():
    """A mismatch within a loose tolerance grows beyond it in the chunks that follow."""
    host = get_device("host")
    walk = make_walk(host, CELLS["tanh"], 200, 16, 1, radius=1.6)
    ours = blank(host, walk)
    newton = NewtonForward(host, ours, 5, tolerance=1e-4, iterations=60)
    newton()
    assert newton.report.converged
    assert_promised(ours, walk, 5, newton.report)


def outputs_of(kind, x, **arguments):
    """By the serial pass and by Newton's iteration, and how the latter went."""
    found = []
    for method in ("serial", "newton"):
        net = bp.Sequential([kind(forward_method=method)], x.shape[1:], device="host")
        net.load_state_dict({**net.state_dict(), **arguments})
        found.append(np.array(net.forward(x)))
    return *found, net.last_pass.layers[0].forward_ways[0]


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_a_layer_without_bias_on_small_inputs(name, many_chunks, rng):
    x = (1e-6 * rng.standard_normal((2, 200, 3))).astype("float32")
    serially, ours, walk = outputs_of(lambda **how: getattr(bp, name)(3, 8, bias=False, **how), x)
    assert "converged" in walk and "over 2 chunks" not in walk
    sizes = np.abs(serially).max(axis=(1, 2))
    assert (np.abs(ours - serially).max(axis=(1, 2)) <= 1e-5 * sizes).all()


@pytest.mark.parametrize("radius", [1.02, 1.1, 1.2])
def test_an_exploding_sample_hides_nothing_of_another(radius, many_chunks, rng):
    """Sample 1 grows by `radius` a step in its first unit, which sample 0 leaves at 0."""
    inner = rng.standard_normal((3, 3))
    weight = np.zeros((4, 4), "float32")
    weight[0, 0], weight[1:, 1:] = radius, 0.9 * inner / np.abs(np.linalg.eigvals(inner)).max()
    x = rng.standard_normal((2, 400, 4)).astype("float32")
    x[..., 0] = 0
    x[1, :, 0] = 1e-2
    weights = {"0.weight_ih_l0": np.eye(4, dtype="float32"), "0.weight_hh_l0": weight}
    serially, ours, walk = outputs_of(
        lambda **how: bp.RNN(4, 4, nonlinearity="relu", bias=False, **how), x, **weights
    )
    assert "over 2 chunks" not in walk
    sizes = np.abs(serially).max(axis=(1, 2))
    assert sizes[1] > 100 * sizes[0]
    assert (np.abs(ours - serially).max(axis=(1, 2)) <= 1e-5 * sizes).all()


def test_a_sample_that_leaves_the_range_is_walked_serially():
    host = get_device("host")
    walk = make_walk(host, CELLS["relu"], 400, 6, 2, radius=2.0, dtype="float32", forward=False)
    walk.weight_hh[...] = 2 * np.eye(6)
    walk.projected[...] = abs(walk.projected)
    walk = scaled(walk, [1e-30, 1.0])
    assert not np.isfinite(walk.final).all()
    ours = blank(host, walk)
    newton = NewtonForward(host, ours, 10)
    with np.errstate(over="ignore", invalid="ignore"):
        newton()
    assert not newton.report.converged
    np.testing.assert_array_equal(ours.state, walk.state)
