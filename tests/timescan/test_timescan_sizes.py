"""What passes over time take is what was counted before, and every buffer of a stack is used."""

import numpy as np
import pytest
from counting import CountingDevice
from marks import some
from timescan_cases import CELLS, make_gradients, make_walk

from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.timescan import serial
from bppsa_cupy.timescan.chunked import TimeScan

HOST = get_device("host")


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
