"""Forward in time by Newton's iteration: the serial pass's states, by every sample's own size, or the serial
pass itself."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from counting import CountingDevice
from hypothesis import example, given
from hypothesis import strategies as st
from marks import some
from newton_cases import Watching, assert_same_walk, blank
from newton_walks import draw_walk, excess, largest, walk_by_newton
from timescan_cases import CELLS, make_walk

import bppsa_cupy as bp
from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.timescan import newton, serial
from bppsa_cupy.timescan.forward import choose_forward
from bppsa_cupy.timescan.newton import NewtonForward

#: Cells of tests in float32.
IN_FLOAT32 = some("tanh", long=[cell for cell in CELLS if cell != "tanh"])


def choose(walk, *method):
    """The chunk length of a walk's forward pass on the host, and why."""
    return choose_forward(get_device("host"), walk.size, *method)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("ragged, reverse", [(False, False), (True, False), (True, True), (False, True)])
def test_it_converges_to_the_serial_pass(cell, ragged, reverse, device):
    for steps, hidden, batch in ((37, 4, 3), (20, 7, 1), (1, 2, 2)):
        walk = make_walk(
            device, CELLS[cell], steps, hidden, batch, radius=0.7, ragged=ragged, reverse=reverse
        )
        for chunk in (1, 5, -(-steps // 2), steps):
            ours = blank(device, walk)
            newton = NewtonForward(device, ours, chunk)
            newton()
            assert newton.report.converged and newton.report.chunks == -(-steps // chunk)
            assert newton.report.error == 0, "the tolerance is too low for boundaries that do not settle"
            assert newton.report.tolerance == 16 * np.finfo(walk.state.dtype).eps
            assert (newton.report.chunks > 1) == (newton.report.iterations > 0)
            assert_same_walk(ours, walk, 1e-12)


def test_few_iterations_do_where_the_network_contracts():
    host = get_device("host")
    walk = make_walk(host, CELLS["tanh"], 2000, 8, 2, radius=0.8)
    newton = NewtonForward(host, blank(host, walk), 50)
    newton()
    assert newton.report.converged and newton.report.iterations <= 6


def test_longer_chunks_need_no_more_iterations_than_single_steps():
    host = get_device("host")
    walk = make_walk(host, CELLS["gru"], 120, 6, 2, radius=1.2)
    iterations = []
    for chunk in (1, 20):
        newton = NewtonForward(host, blank(host, walk), chunk, iterations=120)
        newton()
        assert newton.report.converged
        iterations.append(newton.report.iterations)
    assert iterations[1] <= iterations[0]


def test_the_diagonal_alone_converges_more_slowly_to_the_same():
    host = get_device("host")
    walk = make_walk(host, CELLS["gru"], 60, 5, 2, radius=0.6)
    reports = []
    for diagonal in (False, True):
        ours = blank(host, walk)
        newton = NewtonForward(host, ours, 5, diagonal=diagonal, iterations=30)
        newton()
        assert_same_walk(ours, walk, 1e-12)
        reports.append(newton.report)
    assert all(report.converged for report in reports)
    assert reports[0].iterations <= reports[1].iterations


@pytest.mark.parametrize("cell", some("tanh", long=("relu",)))
def test_where_it_does_not_converge_the_serial_pass_is_taken(cell):
    """Chaotic for tanh; for ReLU states that leave the range."""
    host = get_device("host")
    walk = make_walk(host, CELLS[cell], 300, 12, 2, radius=6.0, dtype="float32")
    ours = blank(host, walk)
    newton = NewtonForward(host, ours, 10, iterations=5)
    newton()
    assert not newton.report.converged
    assert newton.report.iterations == 5 if cell == "tanh" else newton.report.iterations < 5
    assert "run serially" in str(newton.report)
    np.testing.assert_array_equal(ours.state, walk.state)
    np.testing.assert_array_equal(ours.final, walk.final)


def test_nan_in_the_input_goes_through():
    host = get_device("host")
    walk = make_walk(host, CELLS["tanh"], 30, 3, 2)
    walk.projected[10, 0, 1] = np.nan
    ours = blank(host, walk)
    newton = NewtonForward(host, ours, 5)
    newton()
    assert not newton.report.converged and newton.report.iterations == 1
    assert np.isfinite(ours.state[:, :, 0]).all() and np.isfinite(ours.state[:10]).all()
    assert np.isnan(ours.state[10:, 0, 1]).all()


def test_a_chaotic_network_converges_a_chunk_an_iteration_at_least():
    host = get_device("host")
    walk = make_walk(host, CELLS["tanh"], 60, 12, 2, radius=6.0)
    ours = blank(host, walk)
    newton = NewtonForward(host, ours, 20, iterations=50)
    newton()
    assert newton.report.converged
    # Rounding grows with the Jacobians' products, which is what chaos means.
    np.testing.assert_allclose(ours.state[:20], walk.state[:20], rtol=0, atol=1e-12)


def test_auto_takes_the_serial_pass_on_the_host():
    host = get_device("host")
    walk = make_walk(host, CELLS["tanh"], 500, 4, 1)
    assert choose(walk)[0] == 0
    assert choose(walk, "serial") == (0, "as asked for")
    chunk, reason = choose(walk, "newton")
    assert 0 < chunk < 500 and reason == "as asked for"


def test_longer_chunks_are_taken_for_want_of_memory(monkeypatch):
    host = get_device("host")
    walk = make_walk(host, CELLS["tanh"], 20000, 12, 1, dtype="float32", forward=False)
    chunk, reason = choose(walk, "newton")
    assert chunk == 1250 and reason == "as asked for"
    monkeypatch.setattr(type(host), "free_memory", lambda self: 1000)
    assert choose(walk)[0] == 0
    with pytest.raises(DeviceError, match=r"\d+ bytes, 1000 are free for it.*take forward_method='serial'"):
        choose(walk, "newton")


def test_corrections_are_halved_and_then_left_out_while_mismatches_grow():
    """Behind an undamped one, by which the error is told; nothing lies behind the last chunk."""
    device = Watching()
    walk = make_walk(device, CELLS["tanh"], 60, 8, 2, radius=4.0, size=0.1)
    NewtonForward(device, blank(device, walk), 2, iterations=12)()
    dampings = [damping for damping, _ in device.corrections]
    damped = [k for k, damping in enumerate(dampings) if damping != 1.0]
    assert damped and dampings[damped[0]] == 0.5 and 0.0 in dampings
    for before, after in pairwise(damped):
        assert dampings[after - 1] == 1.0
        if dampings[before] == 0.0 and after == before + 2:
            assert dampings[after] == 0.0, "until a mismatch is the least so far"
    assert not any(beyond for _, beyond in device.corrections)


def test_rounding_that_is_carried_on_ends_with_the_last_chunk():
    """Boundaries that move by a rounding for ever are judged by what becomes of roundings at each of them."""
    device = Watching()
    walk = make_walk(device, CELLS["tanh"], 200, 8, 2, radius=1.1, size=0.05, dtype="float32")
    newton = NewtonForward(device, blank(device, walk), 1, tolerance=1e-2)
    newton()
    assert newton.report.converged and 0 < newton.report.error < 1e-2
    assert not any(beyond for _, beyond in device.corrections)


def test_quasi_newton_corrects_by_the_diagonal_of_the_maps():
    """Once the error was told by the whole maps."""
    device = Watching()
    walk = make_walk(device, CELLS["lstm"], 12, 3, 2, radius=0.9)
    NewtonForward(device, blank(device, walk), 3, diagonal=True)()
    assert len(device.maps) > 2
    for whole, taken in zip(device.maps[:-1:2], device.maps[1::2], strict=True):
        np.testing.assert_array_equal(taken, whole * np.eye(6))
        assert np.any(taken != whole) and np.all(np.diagonal(taken, axis1=1, axis2=2) != 0)


HOST = get_device("host")


def run(walk, chunk, device=HOST, **how):
    iteration = NewtonForward(device, blank(device, walk), chunk, **how)
    iteration()
    return iteration


def test_one_chunk_takes_no_memory():
    device = CountingDevice()
    ours = blank(device, make_walk(device, CELLS["gru"], 9, 3, 2))
    taken = device.taken
    NewtonForward(device, ours, 9)
    assert device.taken == taken
    NewtonForward(device, ours, 8)
    assert device.taken > taken


def test_lengths_may_change_between_walks():
    walk = make_walk(HOST, CELLS["gru"], 30, 4, 3, radius=0.7)
    ours = blank(HOST, walk)
    iteration = NewtonForward(HOST, ours, 7)
    iteration()
    walk.lengths[...] = 30, 4, 13
    serial.forward(HOST, walk)()
    iteration()
    assert iteration.report.converged
    assert_same_walk(ours, walk, 1e-12)


def test_states_that_do_not_depend_on_the_chunk_before_take_two_iterations():
    """One to see them, one to see that they stay."""
    walk = make_walk(HOST, CELLS["tanh"], 20, 4, 2, forward=False)
    walk.weight_hh[...] = 0
    assert run(walk, 4).report.iterations == 2


def test_the_first_walk_tells_nothing_of_the_error():
    """However loose the tolerance is, a correction is judged by the walk behind it."""
    walk = make_walk(HOST, CELLS["tanh"], 60, 8, 2, radius=1.1)
    report = run(walk, 2, tolerance=10.0).report
    assert report.converged and report.iterations == 2


def test_boundaries_that_settle_are_within_no_tolerance_at_all():
    walk = make_walk(HOST, CELLS["tanh"], 40, 4, 2, radius=0.5)
    report = run(walk, 8, tolerance=0.0).report
    assert report.converged and report.error == 0


def test_an_undamped_correction_is_made_once_an_iteration():
    device = Watching()
    walk = make_walk(device, CELLS["tanh"], 60, 4, 2, radius=0.7)
    report = run(walk, 5, device).report
    assert report.converged and device.corrections == [(1.0, False)] * report.iterations


def test_a_mismatch_that_stays_is_damped_as_one_that_grows(monkeypatch):
    device = Watching()
    walk = make_walk(device, CELLS["tanh"], 20, 4, 2)
    iteration = NewtonForward(device, blank(device, walk), 5, iterations=5)
    monkeypatch.setattr(iteration, "_errors", lambda: (np.inf, 0.5))
    iteration()
    dampings = [damping for damping, _ in device.corrections]
    assert dampings == [1.0, 1.0, 0.5, 1.0, 0.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize("chunk, walks", [(1, 64), (2, 32), (4, 32)])
def test_boundaries_have_so_many_walks_to_settle(monkeypatch, chunk, walks):
    """As many as take 64 steps, and 32 at least."""
    walk = make_walk(HOST, CELLS["tanh"], 200, 8, 2, radius=1.1, size=0.05, dtype="float32")
    iteration, made = NewtonForward(HOST, blank(HOST, walk), chunk, tolerance=1e-2), []
    walked = iteration._walk_pieces
    monkeypatch.setattr(iteration, "_walk_pieces", lambda: made.append(1) or walked())
    iteration()
    assert iteration.report.converged and iteration.report.error > 0 and len(made) == walks


def carried(iteration, mismatch):
    """The largest step by the size of its state, of every boundary and sample, in float64: step_k =
    mismatch_k + J_k step_{k - 1}, with J = diag(1 - h²) W of chunks of one step."""
    pieces = iteration._pieces
    chunks, rows, batch = mismatch.shape
    ends = pieces.final.reshape(rows, chunks, batch).transpose(1, 0, 2).astype(float)
    weight, largest = pieces.weight_hh[0].astype(float), 0.0
    step = np.zeros((rows, batch))
    for end, missed in zip(ends, mismatch.astype(float), strict=True):
        step = missed + (1 - end**2) * (weight @ step)
        largest = max(largest, (abs(step).max(0) / abs(end).max(0)).max())
    return largest


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("margin", [0.0, 64.0])
@pytest.mark.parametrize("before", [0.0, 0.01])
def test_boundaries_that_move_are_judged_by_jacobians(monkeypatch, diagonal, margin, before):
    """Twice the correction, the larger one of the two walks, and what becomes of two roundings of each
    boundary's state, of either sign."""
    monkeypatch.setattr(newton, "MARGIN", margin)
    walk = make_walk(HOST, CELLS["tanh"], 200, 8, 2, radius=1.1, size=0.05, dtype="float32")
    iteration = run(walk, 1, tolerance=100.0, diagonal=diagonal)
    rows, chunks, batch = 8, 200, 2
    pieces = iteration._pieces
    starts, ends = (a.reshape(rows, chunks, batch).transpose(1, 0, 2) for a in (pieces.initial, pieces.final))
    left = iteration._left(starts, ends, before)
    missed = np.concatenate([ends[:-1] - starts[1:], np.zeros((1, rows, batch))])
    assert missed.any()
    signs = np.random.default_rng(0).choice([-2.0, 2.0], missed.shape)
    roundings = signs * np.finfo("float32").eps * abs(ends).max(1, keepdims=True)
    roundings[-1] = 0
    expected = 2 * max(before, carried(iteration, missed)) + margin * carried(iteration, roundings)
    assert 0 < left == pytest.approx(expected, rel=1e-3)


SIZES = st.floats(-8, 3).map(lambda power: 10.0**power)


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


@pytest.mark.parametrize("cell", some("tanh", long=sorted(set(CELLS) - {"tanh"})))
@given(index=st.integers(0, 10**6))
def test_random_walks_keep_what_is_promised(cell, index):
    drawn = draw_walk(1, index, (CELLS[cell].name,))
    ours, report = walk_by_newton(drawn)
    assert excess(ours, drawn.walk, drawn.chunk, report) <= 1, report


@pytest.mark.long
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


@pytest.mark.parametrize("cell", IN_FLOAT32)
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


@pytest.mark.parametrize("cell", IN_FLOAT32)
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


@pytest.mark.parametrize("name", some("RNN", long=["GRU", "LSTM"]))
def test_a_layer_without_bias_on_small_inputs(name, rng):
    x = (1e-6 * rng.standard_normal((2, 200, 3))).astype("float32")
    serially, ours, walk = outputs_of(lambda **how: getattr(bp, name)(3, 8, bias=False, **how), x)
    assert "converged" in walk and "over 2 chunks" not in walk
    sizes = np.abs(serially).max(axis=(1, 2))
    assert (np.abs(ours - serially).max(axis=(1, 2)) <= 1e-5 * sizes).all()


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


@pytest.mark.long
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
