"""Forward in time by Newton's iteration: the serial pass's states, by every sample's own size, or the serial
pass itself."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from marks import some, some_rows
from timescan_cases import CELLS, QUICK, make_walk, on_host

import bppsa_cupy as bp
from bppsa_cupy.devices import get_device
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.timescan import Walk, serial
from bppsa_cupy.timescan.forward import ChunkedForward, choose_forward

#: Cells of the tests that draw walks.
DRAWN = some("tanh", long=[cell for cell in CELLS if cell != "tanh"])


def blank(device, walk):
    """The same walk with arrays of its own to fill."""
    fresh = {
        name: device.arrange(device.zeros(getattr(walk, name).shape, walk.state.dtype))
        for name in ("state", "final")
    }
    gates = None if walk.gates is None else device.arrange(device.zeros(walk.gates.shape, walk.state.dtype))
    return replace(walk, gates=gates, **fresh)


def assert_same_walk(ours, theirs, tolerance):
    """States and final states; gates where the sample is not padded."""
    for name in ("state", "final"):
        actual, expected = on_host(getattr(ours, name)), on_host(getattr(theirs, name))
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)
    if ours.gates is not None:
        inside = np.arange(ours.size.steps)[:, None, None] < on_host(ours.lengths)
        actual, expected = on_host(ours.gates) * inside, on_host(theirs.gates) * inside
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


class Drawn(NamedTuple):
    """A walk of any cell, expanding or not, small or beyond the range, walked serially; and how Newton's
    iteration is to walk it."""

    cell: str
    walk: Walk
    chunk: int


def draw_walk(seed: int, index: int, cell: str, dtype: np.dtype) -> Drawn:
    """Walk `index` of a run with `seed`: to 300 steps, weights of a gain of 0.1 to 32. One walk in twenty has
    inputs of some 1e30, one in three expands over many chunks."""
    rng = np.random.default_rng([seed, index])
    loose = rng.integers(3) == 0
    steps = int(rng.integers(100, 300) if loose else 2 * 150 ** rng.random())
    hidden, batch, chunk = (int(rng.integers(*span)) for span in ((1, 7), (1, 4), (1, 4 if loose else 10)))
    walk = make_walk(
        get_device("host"), FORMS[cell], steps, hidden, batch, dtype=dtype,
        ragged=bool(rng.integers(2)), reverse=bool(rng.integers(2)), forward=False,
    )  # fmt: skip
    gain = 10 ** (rng.uniform(0.1, 0.7) if loose else rng.uniform(-1, 1.5)) / np.sqrt(hidden)
    walk.weight_hh[...] = rng.standard_normal(walk.weight_hh.shape) * gain
    sizes = 10 ** rng.uniform(-3, 2, batch) * (1e30 if rng.integers(20) == 0 else 1)
    for array in (walk.projected, walk.initial):
        array[...] = rng.standard_normal(array.shape) * sizes
    if rng.integers(2):
        walk.bias_hh[...] = 0
    with np.errstate(over="ignore", invalid="ignore"):
        serial.forward(get_device("host"), walk)()
    return Drawn(cell, walk, chunk)


def assert_is_serial(drawn: Drawn) -> None:
    """Newton's iteration gives every bit of states, gates and last states that the serial pass gives."""
    walk = drawn.walk
    fresh = {name: np.full_like(getattr(walk, name), 7) for name in ("state", "gates", "final")}
    ours = replace(walk, **fresh)
    ChunkedForward(get_device("host"), ours, drawn.chunk)()
    inside = np.arange(walk.size.steps)[:, None, None] < walk.lengths
    np.testing.assert_array_equal(ours.state, walk.state)
    np.testing.assert_array_equal(ours.final, walk.final)
    np.testing.assert_array_equal(ours.gates * inside, walk.gates * inside)


def choose(walk, *method):
    """The chunk length of a walk's forward pass on the host, and why."""
    return choose_forward(get_device("host"), walk.size, *method)


@pytest.mark.parametrize("cell", QUICK)
@pytest.mark.parametrize(
    "ragged, reverse", some_rows((False, False), (True, True), long=[(True, False), (False, True)])
)
def test_it_converges_to_the_serial_pass(cell, ragged, reverse, device):
    for steps, hidden, batch in ((37, 4, 3), (20, 7, 1), (1, 2, 2)):
        walk = make_walk(
            device, CELLS[cell], steps, hidden, batch, radius=0.7, ragged=ragged, reverse=reverse
        )
        for chunk in (1, 5, -(-steps // 2), steps):
            ours = blank(device, walk)
            newton = ChunkedForward(device, ours, chunk)
            newton()
            assert newton.converged and newton.chunks == -(-steps // chunk)
            assert (newton.chunks > 1) == (newton.iterations > 0)
            assert_same_walk(ours, walk, 1e-12)


@pytest.mark.parametrize("cell", some("tanh", long=("relu",)))
def test_where_it_does_not_converge_the_serial_pass_is_taken(cell, dtype):
    """Chaotic for tanh; for ReLU states that leave the range."""
    host = get_device("host")
    radius = 6.0 if cell == "tanh" else 20.0
    walk = make_walk(host, CELLS[cell], 300, 12, 2, radius=radius, dtype=dtype)
    ours = blank(host, walk)
    newton = ChunkedForward(host, ours, 10)
    newton()
    assert not newton.converged
    assert newton.iterations == 16 if cell == "tanh" else newton.iterations < 16
    assert "run serially" in newton.description
    np.testing.assert_array_equal(ours.state, walk.state)
    np.testing.assert_array_equal(ours.final, walk.final)


def test_nan_in_the_input_goes_through():
    host = get_device("host")
    walk = make_walk(host, CELLS["tanh"], 30, 3, 2)
    walk.projected[10, 0, 1] = np.nan
    ours = blank(host, walk)
    newton = ChunkedForward(host, ours, 5)
    newton()
    assert not newton.converged and newton.iterations == 1
    assert np.isfinite(ours.state[:, :, 0]).all() and np.isfinite(ours.state[:10]).all()
    assert np.isnan(ours.state[10:, 0, 1]).all()


def test_auto_takes_the_serial_pass_on_the_host():
    host = get_device("host")
    walk = make_walk(host, CELLS["tanh"], 500, 4, 1)
    assert choose(walk)[0] == 0
    assert choose(walk, "serial") == (0, "as asked for")
    chunk, reason = choose(walk, "newton")
    assert 0 < chunk < 500 and reason == "as asked for"


HOST = get_device("host")


def test_lengths_may_change_between_walks():
    walk = make_walk(HOST, CELLS["gru"], 30, 4, 3, radius=0.7)
    ours = blank(HOST, walk)
    iteration = ChunkedForward(HOST, ours, 7)
    iteration()
    walk.lengths[...] = 30, 4, 13
    serial.forward(HOST, walk)()
    iteration()
    assert iteration.converged
    assert_same_walk(ours, walk, 1e-12)


SIZES = st.floats(-8, 3).map(lambda power: 10.0**power)


def scaled(walk, sizes):
    """The walk with each sample's input and initial state times its size, walked serially."""
    for array in (walk.projected, walk.initial):
        array[...] *= np.asarray(sizes, array.dtype)
    walk.bias_hh[...] = 0
    with np.errstate(over="ignore", invalid="ignore"):
        serial.forward(get_device("host"), walk)()
    return walk


@pytest.mark.parametrize("cell", DRAWN)
@given(index=st.integers(0, 10**6))
def test_random_walks_are_the_serial_pass(cell, dtype, index):
    assert_is_serial(draw_walk(1, index, CELLS[cell].name, dtype))


@pytest.mark.parametrize("cell", DRAWN)
@given(
    sizes=st.lists(SIZES, min_size=2, max_size=2),
    radius=st.floats(-1, np.log10(2)).map(lambda power: 10.0**power),
    steps=st.sampled_from([64, 150]),
    chunk=st.sampled_from([1, 4, 7]),
    ragged=st.booleans(),
    reverse=st.booleans(),
)
@example(
    sizes=[1.0, 1.144441900797323], radius=1.144441900797323, steps=150, chunk=1, ragged=False, reverse=False,
)  # fmt: skip
def test_samples_of_any_size_are_the_serial_pass(cell, dtype, sizes, radius, steps, chunk, ragged, reverse):
    host = get_device("host")
    walk = make_walk(
        host, CELLS[cell], steps, 5, 2, radius=radius, dtype=dtype, ragged=ragged, reverse=reverse,
        forward=False,
    )  # fmt: skip
    assert_is_serial(Drawn(cell, scaled(walk, sizes), chunk))


@pytest.mark.parametrize("cell", DRAWN)
@pytest.mark.parametrize("size", [0.0, 1e-310, 1e-42, 1e-30, 1e-6])
def test_small_inputs_are_not_taken_for_none(cell, size, dtype):
    """Where every state but 0 is below the smallest normal number, 0 is within the tolerance."""
    host = get_device("host")
    walk = make_walk(host, CELLS[cell], 120, 6, 2, dtype=dtype, forward=False)
    walk = scaled(walk, [size, size])
    ours = blank(host, walk)
    newton = ChunkedForward(host, ours, 6)
    newton()
    assert newton.converged and newton.chunks == 20
    np.testing.assert_array_equal(ours.state, walk.state)


def outputs_of(kind, x, **arguments):
    """By the serial pass and by Newton's iteration, and how the latter went."""
    outputs = []
    for method in ("serial", "newton"):
        net = bp.Sequential([kind(forward_method=method)], x.shape[1:], device="host")
        net.load_state_dict({**net.state_dict(), **arguments})
        outputs.append(np.array(net.forward(x)))
    return *outputs, net.last_pass.layers[0].forward_ways[0]


@pytest.mark.long
@pytest.mark.parametrize("radius", [1.02, 1.1, 1.2])
def test_an_exploding_sample_hides_nothing_of_another(radius, rng):
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
