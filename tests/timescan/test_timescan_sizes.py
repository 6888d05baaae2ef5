"""What passes over time take is what was counted before, and every buffer of a stack is used."""

import tracemalloc
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from counting import CountingDevice
from marks import some
from timescan_cases import CELLS, make_gradients, make_walk

from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.timescan import StackSize, WalkSize, serial
from bppsa_cupy.timescan.chunked import TimeScan
from bppsa_cupy.timescan.direction import make_directions, stack_shapes
from bppsa_cupy.timescan.forward import check_forward, choose_forward
from bppsa_cupy.timescan.newton import NewtonForward
from bppsa_cupy.timescan.stack import recurrent_rows

HOST = get_device("host")


class Read(dict):
    """A dict that knows which items were read."""

    def __init__(self, *items):
        super().__init__(*items)
        self.names = set()

    def __getitem__(self, name):
        self.names.add(name)
        return super().__getitem__(name)


def walk_and_outs(cell, steps, batch, hidden, dtype="float32"):
    """A walk, and what a pass back takes of arrays behind it."""
    walk = make_walk(HOST, CELLS[cell], steps, hidden, batch, dtype=dtype)
    gradient, last = make_gradients(HOST, walk, True)
    delta = np.zeros((steps, CELLS[cell].deltas * hidden, batch), dtype)
    return walk, (gradient, last, delta, np.zeros_like(last))


@pytest.mark.parametrize("cell", some("tanh", long=["lstm"]))
@pytest.mark.parametrize("steps, batch, hidden, chunk", [(9, 2, 3, 2), (8, 3, 1, 4), (30, 1, 7, 29)])
def test_a_pass_back_by_chunks_takes_its_bytes_beside_a_flag(cell, steps, batch, hidden, chunk):
    walk, arrays = walk_and_outs(cell, steps, batch, hidden)
    device, alone = CountingDevice(), CountingDevice()
    TimeScan(device, walk, *arrays, method="hybrid", chunk=chunk)
    serial.backward(alone, walk, *arrays[:2], steps, *arrays[2:])
    needed = walk.size.chunk_bytes(chunk)
    assert device.taken - alone.taken == needed + np.dtype(np.int32).itemsize
    TimeScan(CountingDevice(needed), walk, *arrays, method="hybrid", chunk=chunk)
    with pytest.raises(
        DeviceError, match=f"by chunks of {chunk} takes {needed} bytes, {needed - 1} are free"
    ):
        TimeScan(CountingDevice(needed - 1), walk, *arrays, method="hybrid", chunk=chunk)


def test_a_chunk_that_was_not_asked_for_is_one_that_fits():
    walk, arrays = walk_and_outs("tanh", 200, 2, 3)

    def chosen(free):
        return TimeScan(CountingDevice(free), walk, *arrays, method="blelloch").choice.chunk

    free = walk.size.chunk_bytes(50)
    assert walk.size.chunk_bytes(chosen(2**40)) > free >= walk.size.chunk_bytes(chosen(free))


@pytest.mark.parametrize("chunk", [1, 2, 7, 19, 39])
def test_the_shortest_chunk_that_fits_is_found(chunk):
    size = WalkSize(CELLS["lstm"], 40, 2, 3, itemsize=4)
    for free in (size.chunk_bytes(chunk), size.chunk_bytes(chunk) - 1):
        fitting = [c for c in range(1, 41) if size.chunk_bytes(c) <= free]
        assert size.fitting_chunk(free) == min(fitting, default=None)


@pytest.mark.parametrize("cell", some("tanh", long=["lstm"]))
@pytest.mark.parametrize("batch, hidden, chunk", [(4, 20, 1), (40, 2, 5), (6, 12, 50)])
def test_an_iteration_of_newtons_takes_no_more_than_its_bytes_and_most_of_them(cell, batch, hidden, chunk):
    """Where maps, boundaries or the walk itself are most of it. NumPy tells of temporary arrays too: the
    input on its way into chunks, or four vectors a boundary."""
    walk = make_walk(HOST, CELLS[cell], 400, hidden, batch, dtype="float32", radius=0.3)
    NewtonForward(HOST, walk, chunk)()  # compiles
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        iteration = NewtonForward(HOST, walk, chunk)
        iteration()
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert iteration.report.converged
    needed = walk.size.newton_bytes(chunk)
    assert 0.7 * needed <= peak <= needed + 2**15, peak / needed
    device, size = CountingDevice(), walk.size
    NewtonForward(device, walk, chunk)
    found = 2 * CELLS[cell].states * batch * 4
    more = chunk * CELLS[cell].gates * hidden + 4 * size.state
    assert needed - device.taken + found == size.chunks(chunk) * batch * more * 4


def test_newtons_chunk_is_the_first_that_fits_to_the_byte():
    size = WalkSize(CELLS["gru"], 300, 2, 5, itemsize=4)
    first, second = size.newton_bytes(19), size.newton_bytes(38)
    assert second < first and choose_forward(HOST, size, "newton", first)[0] == 19
    assert choose_forward(HOST, size, "newton", first - 1)[0] == 38
    least = min(map(size.newton_bytes, (19, 38, 76, 152)))
    with pytest.raises(DeviceError, match=rf"takes {first} bytes, {least - 1} are free for it"):
        choose_forward(HOST, size, "newton", least - 1)


@pytest.mark.parametrize("layers, directions, heads", [*product((1, 2, 3), (1, 2), (1, 2))])
def test_every_buffer_of_a_stack_is_used(layers, directions, heads):
    for bias, every_step in product((False, True), repeat=2):
        walk = WalkSize(CELLS["gru"], 3, 2, 4, itemsize=4, heads=heads)
        sizes = StackSize(walk, 5, layers, directions, bias, every_step)
        shapes = stack_shapes(sizes, HOST)
        buffers = Read({name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
        buffers["lengths"] = np.full(2, 3)
        arrays = {}
        for layer, direction in product(range(layers), range(directions)):
            of = f"_l{layer}" + "_reverse" * direction
            arrays |= {f"weight_ih{of}": np.zeros((12, sizes.inputs_of(layer)))}
            arrays |= {f"weight_hh{of}": np.zeros((12, 4 // heads))}
        if bias:
            arrays |= {name.replace("weight", "bias"): np.zeros(12) for name in arrays}
        made = make_directions(HOST, sizes, buffers, arrays, arrays)
        assert buffers.names | {"sums"} == set(buffers)
        for row in made:
            for one in row:
                assert one.values.shape == (3, sizes.inputs_of(made.index(row)), 2)
                assert one.walk.bias_hh.shape == (heads, 12 // heads) and one.by_input.shape[2] == 2


def test_a_walk_without_a_gradient_a_step_takes_no_offsets():
    """Three chunks: two maps with their exponents, and a boundary on either side of each chunk."""
    walk, (_, *arrays) = walk_and_outs("tanh", 6, 1, 2, "float64")
    device, alone = CountingDevice(), CountingDevice()
    TimeScan(device, walk, None, *arrays, method="hybrid", chunk=2)
    serial.backward(alone, walk, None, arrays[0], 6, *arrays[1:])
    assert device.taken - alone.taken == 2 * (4 * 8 + 2 * 4) + 2 * 3 * 2 * 8 + 4
    assert replace(walk.size, steps=2).chunks(2) == 1


def test_bytes_that_are_not_there_are_told_as_none():
    size = WalkSize(CELLS["tanh"], 50, 2, 4, itemsize=4)
    with pytest.raises(DeviceError, match=r"takes \d+ bytes, 0 are free for it"):
        check_forward(CountingDevice(100), StackSize(size, 3, 1, 1, True, True), "newton", 1000)


@pytest.mark.parametrize("layers, directions", [(3, 1), (3, 2)])
def test_iterations_of_all_layers_and_directions_fit_beside_what_is_taken(layers, directions):
    size = WalkSize(CELLS["gru"], 50, 2, 4, itemsize=4)
    sizes = StackSize(size, 3, layers, directions, True, True)
    needed = layers * directions * min(map(size.newton_bytes, (4, 8, 16, 32)))
    check_forward(CountingDevice(needed + 1000), sizes, "newton", 1000)
    with pytest.raises(DeviceError, match="Newton's iteration over chunks"):
        check_forward(CountingDevice(needed + 999), sizes, "newton", 1000)


@pytest.mark.parametrize("cell", CELLS)
def test_rows_of_recurrent_weights_are_taken_in_as_few_runs_as_there_are(cell):
    sources, hidden, gates = CELLS[cell].recurrent_rows, 3, []
    runs = list(recurrent_rows(CELLS[cell], hidden))
    for first, rows in runs:
        count = (rows.stop - rows.start) // hidden
        gates += [(rows.start // hidden + gate, first // hidden + gate) for gate in range(count)]
    assert gates == list(enumerate(sources))
    assert len(runs) == 1 + sum(second != first + 1 for first, second in pairwise(sources))
