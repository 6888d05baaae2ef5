"""Sequences of a layer's caller, to and from those of the scans over time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from timescan_cases import placed

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.timescan.exchange import Gather, Scatter

STEPS, ROWS, COLUMNS = 5, 3, 7


def sequences(device: Device, batch: int, by_time: bool, rng: np.random.Generator) -> Array:
    """(B, T, columns), or a view of (T, B, columns)."""
    if by_time:
        return device.asarray(rng.standard_normal((STEPS, batch, COLUMNS))).swapaxes(0, 1)
    return device.asarray(rng.standard_normal((batch, STEPS, COLUMNS)))


def ends(batch: int, early: bool) -> np.ndarray:
    """Where each sample ends: at T, or the last one at 2."""
    return np.array([STEPS] * (batch - early) + [2] * early)


CASES = [
    (batch, early, by_time, first)
    for batch, early, by_time, first in itertools.product((1, 3), (False, True), (False, True), (0, 2))
    if batch == 1 or not (early and by_time)
]


@pytest.mark.parametrize(("batch", "early", "by_time", "first"), CASES)
def test_columns_come_in(device: Device, rng: np.random.Generator, batch, early, by_time, first) -> None:
    inside, lengths = device.empty_walk((STEPS, ROWS, batch), np.float64), ends(batch, early)
    gather = Gather(device, device.asarray(lengths), inside, first)
    for _ in range(2):
        outside = sequences(device, batch, by_time, rng)
        gather(outside, early)
        expected = device.to_host(outside)[:, :, first : first + ROWS].transpose(1, 2, 0).copy()
        for sample, end in enumerate(lengths):
            expected[end:, :, sample] = 0
        np.testing.assert_array_equal(device.to_host(inside), expected)


@pytest.mark.parametrize(("batch", "early", "by_time", "first"), CASES)
def test_rows_go_out(device: Device, rng: np.random.Generator, batch, early, by_time, first) -> None:
    lengths = ends(batch, early)
    values = rng.standard_normal((STEPS, ROWS + 1, batch))
    scatter = Scatter(device, device.asarray(lengths), placed(device, values), ROWS, first)
    for _ in range(2):
        outside = sequences(device, batch, by_time, rng)
        expected = np.array(device.to_host(outside))
        expected[:, :, first : first + ROWS] = values[:, :ROWS].transpose(2, 0, 1)
        for sample, end in enumerate(lengths):
            expected[sample, end:, first : first + ROWS] = 0
        scatter(outside, early)
        np.testing.assert_array_equal(device.to_host(outside), expected)


def test_launches_are_bound_once_for_equal_sequences(device: Device, monkeypatch) -> None:
    bound, bind = [], type(device).bind_open

    def counted(self, *given):
        bound.append(given)
        return bind(self, *given)

    monkeypatch.setattr(type(device), "bind_open", counted)
    inside = device.empty_walk((STEPS, ROWS, 2), np.float64)
    exchanges = [make(device, device.asarray(ends(2, True)), inside, ROWS) for make in (Gather, Scatter)]
    for exchange, columns in itertools.product(exchanges, (2 * ROWS, 2 * ROWS, COLUMNS, COLUMNS)):
        exchange(device.zeros((2, STEPS, columns), np.float64), True)
    assert len(bound) == 4


def test_what_a_launch_does_not_take_is_refused_at_every_call(device: Device) -> None:
    inside = device.empty_walk((STEPS, ROWS, 2), np.float64)
    gather = Gather(device, device.asarray(ends(2, False)), inside)
    whole = device.zeros((2, STEPS, ROWS), np.float64)
    gather(whole, False)
    with pytest.raises(ShapeError, match="outside is not C-contiguous"):
        gather(device.zeros((4, STEPS, ROWS), np.float64)[::2], False)
    with pytest.raises(ShapeError, match=r"inside is float64: it takes float32"):
        gather(device.zeros((2, STEPS, ROWS), np.float32), False)
