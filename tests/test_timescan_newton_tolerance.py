"""What Newton's iteration promises of every sample's states, by their own size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from test_timescan_newton import blank
from timescan_cases import CELLS, make_walk

import bppsa_cupy as bp
from bppsa_cupy.devices import get_device
from bppsa_cupy.timescan import models, serial
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


def largest(values, walk):
    """Of each part of the state (h, c) and sample."""
    return (
        np.abs(values)
        .reshape(*values.shape[:-2], walk.size.cell.states, walk.size.hidden, walk.size.batch)
        .max(-2)
    )


def assert_promised(ours, walk, chunk, report):
    """The serial pass's bits; or, where boundaries did not settle, the tolerance at boundaries, and between
    them what the Jacobians make of it."""
    if report.error == 0:
        np.testing.assert_array_equal(ours.state, walk.state)
        np.testing.assert_array_equal(ours.final, walk.final)
        return
    error, size = largest(ours.state - walk.state, walk), largest(walk.state, walk)
    if not walk.reverse:
        assert (error <= report.tolerance * size)[chunk - 1 :: chunk].all()
    assert (error.max(0) <= 100 * report.tolerance * size.max(0)).all()


def random_walk(seed):
    """A walk of any cell, expanding or not, small or beyond the range; walked serially. Its chunk length, and
    whether the diagonals alone are taken."""
    rng = np.random.default_rng([1, seed])
    steps, hidden, batch, chunk = (int(rng.integers(*span)) for span in ((2, 60), (1, 6), (1, 4), (1, 9)))
    walk = make_walk(
        get_device("host"), CELLS[rng.choice(list(CELLS))], steps, hidden, batch,
        dtype=("float32", "float64")[rng.integers(2)], ragged=bool(rng.integers(2)),
        reverse=bool(rng.integers(2)), forward=False,
    )  # fmt: skip
    scale = 10 ** rng.uniform(-1, 1.5) / np.sqrt(hidden)
    walk.weight_hh[...] = rng.standard_normal(walk.weight_hh.shape) * scale
    sizes = 10 ** rng.uniform(-3, 2, batch) * (1e30 if rng.integers(20) == 0 else 1)
    for array in (walk.projected, walk.initial):
        array[...] = rng.standard_normal(array.shape) * sizes
    with np.errstate(over="ignore", invalid="ignore"):
        serial.forward(get_device("host"), walk)()
    return walk, chunk, bool(rng.integers(2))


@pytest.mark.parametrize("seeds", [range(25 * k, 25 * k + 25) for k in range(4)])
def test_random_walks_are_the_serial_pass_to_the_bit(seeds):
    converged = 0
    for seed in seeds:
        walk, chunk, diagonal = random_walk(seed)
        ours = blank(get_device("host"), walk)
        newton = NewtonForward(get_device("host"), ours, chunk, diagonal=diagonal)
        newton()
        np.testing.assert_array_equal(ours.state, walk.state, err_msg=f"seed {seed}")
        np.testing.assert_array_equal(ours.final, walk.final, err_msg=f"seed {seed}")
        converged += newton.report.converged
    assert converged > len(seeds) / 2


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
