"""A walk back through time by a given way."""

from __future__ import annotations

from bppsa_cupy.timescan.chunked import TimeScan


def run(device, walk, gradient, last, **how):
    """delta, entering, and the scan that made them."""
    delta = device.empty_walk(
        (walk.size.steps, walk.size.cell.deltas * walk.size.hidden, walk.size.batch), walk.state.dtype
    )
    entering = device.empty_walk(walk.final.shape, walk.state.dtype)
    scan = TimeScan(device, walk, gradient, last, delta, entering, **how)
    scan()
    return device.to_host(delta), device.to_host(entering), scan
