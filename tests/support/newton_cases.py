"""Walks for Newton's iteration, and devices that watch them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from timescan_cases import on_host


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
