"""bp.check_cell on a device: a layer of the cell, serially and by scans, is its functions step by step."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
from cell_cases import SLOW, every_function_cell
from marks import some

import bppsa_cupy as bp
from bppsa_cupy.devices import Device
from bppsa_cupy.network import cell_check
from bppsa_cupy.timescan import serial


def assert_passes(cell: bp.Cell, device: str | Device) -> None:
    report = bp.check_cell(cell, device)
    assert 0 < report.serial < 1e-13 and 0 < report.scanned < 1e-11
    assert report[:3] == bp.check_cell(cell)[:3]


@pytest.mark.long
@pytest.mark.parametrize("name", ["rnn_relu", "gru", "peephole_lstm", "slow"])
def test_cells_pass_on_every_device(name: str, device: Device) -> None:
    assert_passes(SLOW if name == "slow" else bp.Cell.built_in(name), device)


def test_a_cell_of_every_function_passes_emulated(emulated: Device) -> None:
    assert_passes(every_function_cell(), emulated)


def test_sums_with_gradients_of_their_own_a_launch_a_step(
    emulated: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all gates, the first among them, the gradients by x and by u differ."""
    monkeypatch.setattr(serial, "serial_way", lambda *_: "steps")
    cell = bp.Cell(
        "separate",
        gates=["a", "b", "c"],
        states=["h"],
        step=lambda x, u, s, p: {
            "h": 0.5 * s.h + sympy.tanh(x.a + 2 * u.a) * sympy.tanh(x.b - u.b) + 0.3 * u.c * x.c
        },
    )
    assert_passes(cell, emulated)
    assert emulated.launched["separate_forward_step"] and emulated.launched["separate_backward_step"]


@pytest.mark.parametrize("method", some("bp", long=["blelloch"]))
def test_a_wrong_gradient_is_told_with_its_way(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(bp.Sequential):
        def backward(self, gradient: Any, **options: Any) -> Any:
            result = super().backward(gradient, **options)
            if options["method"] == method:
                self.gradients["0.weight_hh_l0"][2] *= 1.00001
            return result

    monkeypatch.setattr(cell_check, "Sequential", Wrong)
    with pytest.raises(bp.CellError, match=rf"host.* {method}.*0\.weight_hh_l0"):
        bp.check_cell(bp.Cell.built_in("rnn_tanh"), "host")
