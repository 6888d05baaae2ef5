"""Scans over time of cells without recurrent gates: by chunks of every length as step after step."""

from __future__ import annotations

import numpy as np
import pytest
import sympy
from cell_cases import UNITS
from marks import some
from timescan_cases import placed, random_walk, run

import bppsa_cupy as bp
from bppsa_cupy.devices import Device
from bppsa_cupy.timescan import WalkSize, serial
from bppsa_cupy.timescan.forward import ChunkedForward

#: One whose Jacobian is made of fixed numbers, in two states of which one is handed on as it was.
FIXED = bp.Cell(
    "fixed", gates=["h"], states=["h", "c"], recurrent=[],
    step=lambda x, u, s, p: {"h": s.h / 2 - s.c / 4 + sympy.tanh(x.h), "c": s.h},
)  # fmt: skip
FORMS = {"fixed": FIXED.form} | {name: UNITS[name].form for name in ("turning", "averages", "peeping")}
HIDDEN = 3


@pytest.mark.parametrize(
    "steps, batch, ragged, reverse", [(0, 2, 0, 0), (1, 1, 0, 1), (13, 2, 1, 0), (13, 7, 1, 1)]
)
@pytest.mark.parametrize("name", some("turning", long=("peeping", "fixed", "averages")))
def test_every_chunk_length_gives_the_serial_pass(
    name: str, steps: int, batch: int, ragged: bool, reverse: bool, device: Device
) -> None:
    form = FORMS[name]
    size = WalkSize(form, steps, batch, HIDDEN, 8, HIDDEN)
    walk = random_walk(device, size, bool(reverse), bool(ragged), "float64")
    serial.forward(device, walk)()
    kept = [device.to_host(array).copy() for array in (walk.state, walk.gates, walk.final)]
    if not steps:
        np.testing.assert_array_equal(kept[2], device.to_host(walk.initial))
        return
    rng = np.random.default_rng(1)
    gradient = placed(device, rng.standard_normal((steps, HIDDEN, batch)))
    last = placed(device, rng.standard_normal(walk.final.shape))
    back = [run(device, walk, g, last, method="bp")[:2] for g in (gradient, None)]
    for chunk in (1, 5, steps):
        forward = ChunkedForward(device, walk, chunk)
        for array in (walk.state, walk.gates, walk.final):
            array[...] = 7
        forward()
        for array, wanted in zip((walk.state, walk.gates, walk.final), kept, strict=True):
            np.testing.assert_allclose(device.to_host(array), wanted, rtol=1e-12, atol=1e-12)
        for g, wanted in zip((gradient, None), back, strict=True):
            *found, scan = run(device, walk, g, last, method="blelloch", chunk=chunk)
            assert (scan.choice.method == "chunked") == (chunk < steps)
            for ours, theirs in zip(found, wanted, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
