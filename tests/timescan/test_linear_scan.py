"""Linear scans and their gradients against the recurrence step by step, and PyTorch's autograd of it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from linear_reference import random_of, scan_of_torch, states_of
from marks import some, some_rows
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy.devices import Device

SHAPES = ((2, 13, 3), (1, 7, 33), (3, 1, 16), (2, 0, 5), (0, 3, 2), (2, 5, 0))
WAYS = ({"method": "serial"}, {"method": "chunked", "chunk": 4}, {"method": "chunked", "chunk": 1}, {})


def factors_of(shape: tuple[int, ...], form: int) -> tuple[int, ...]:
    """The shape of a: of every step, of every step for all samples, of every sample for all steps, or one."""
    batch, steps, hidden = shape
    return ((batch, steps, hidden), (1, steps, hidden), (batch, 1, hidden), (1, 1, hidden))[form]


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_states_and_gradients_are_those_of_the_recurrence(
    shape: tuple[int, int, int], dtype: type, rng: np.random.Generator
) -> None:
    batch, steps, hidden = shape
    for number, (form, reverse, ragged, marked) in enumerate(
        itertools.product(range(4), *[(False, True)] * 3)
    ):
        if ragged and steps == 0:
            continue
        a = random_of(rng, factors_of(shape, form), dtype)
        b, gradient = (random_of(rng, shape, dtype) for _ in range(2))
        h0 = random_of(rng, (batch, hidden), dtype) if number % 3 else None
        lengths = rng.integers(1, steps + 1, batch) if ragged else None
        resets = rng.random((batch, steps) if number % 2 else steps) < 0.3 if marked else None
        tensors = [None if x is None else torch.from_numpy(x).requires_grad_() for x in (a, b, h0)]
        expected = scan_of_torch(*tensors, reverse, lengths, resets)
        expected.backward(torch.from_numpy(gradient))
        for way in WAYS:
            h = bp.linear_scan(a, b, h0, reverse, lengths, resets, **way)
            np.testing.assert_allclose(h, expected.detach().numpy(), rtol=1e-12, atol=1e-12)
            gradients = bp.linear_scan_backward(a, h, gradient, h0, reverse, lengths, resets, **way)
            for mine, tensor in zip(gradients, tensors, strict=True):
                if tensor is not None and tensor.grad is not None:
                    scale = 1 + abs(tensor.grad.numpy()).max(initial=0)
                    np.testing.assert_allclose(mine, tensor.grad.numpy(), rtol=1e-12, atol=1e-12 * scale)
            assert gradients.h0.shape == (batch, hidden) and gradients.a.shape == a.shape


@pytest.mark.parametrize("dtype", some(np.float64, long=[np.float32, np.complex64]))
def test_bits_of_a_unit_are_the_same_whatever_is_beside_it(dtype: type, rng: np.random.Generator) -> None:
    """One, two, four and five groups of lanes."""
    a, b, gradient = (random_of(rng, (2, 9, 80), dtype) for _ in range(3))
    resets = rng.random(9) < 0.3
    h = bp.linear_scan(a, b, resets=resets)
    expected = bp.linear_scan_backward(a, h, gradient, resets=resets)
    for units in (8, 16, 32, 64):
        of_few, *rest = (x[..., :units].copy() for x in (a, b, h, gradient))
        np.testing.assert_array_equal(bp.linear_scan(of_few, rest[0], resets=resets), rest[1])
        actual = bp.linear_scan_backward(of_few, *rest[1:], resets=resets)
        for mine, theirs in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(mine, theirs[..., :units])


@pytest.mark.parametrize("real", some(np.float64, long=[np.float32]))
def test_every_device_and_dtype_gives_these_states(
    device: Device, real: type, rng: np.random.Generator
) -> None:
    for dtype in (real, np.result_type(real, np.complex64)):
        a, b, g = (random_of(rng, (2, 11, 5), dtype) for _ in range(3))
        wide = np.promote_types(dtype, np.float64)
        expected = states_of(a.astype(wide), b.astype(wide))
        tensors = [torch.from_numpy(x.astype(wide)).requires_grad_() for x in (a, b)]
        scan_of_torch(*tensors).backward(torch.from_numpy(g.astype(wide)))
        for way in WAYS[:2]:
            h = bp.linear_scan(a, b, device=device, **way)
            assert h.dtype == dtype
            gradients = bp.linear_scan_backward(a, h, g, device=device, **way)
            for mine, theirs in zip(
                (h, *gradients), (expected, *(t.grad.numpy() for t in tensors)), strict=False
            ):
                mine = device.to_host(mine)
                for part in (np.real, np.imag):
                    assert_close(part(mine), part(theirs), 64, scale=abs(theirs).max())


@pytest.mark.parametrize("steps", some(997, long=[1_000_003]))
def test_chunks_give_the_states_of_the_serial_scan(steps: int, rng: np.random.Generator) -> None:
    for dtype, hidden in ((np.float64, 17), (np.complex128, 3)):
        a = random_of(rng, (1, steps, hidden), dtype)
        a /= np.maximum(1, abs(a))
        b = random_of(rng, (1, steps, hidden), dtype)
        serial = bp.linear_scan(a, b, method="serial")
        for chunk in (64, 640):
            chunked = bp.linear_scan(a, b, method="chunked", chunk=chunk)
            assert abs(chunked - serial).max() <= 1e-13 * abs(serial).max()


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 1e200, 1e-200, 1e200j, 1j])
def test_factors_at_the_ends_of_the_range(value: complex) -> None:
    dtype = np.complex128 if isinstance(value, complex) else np.float64
    a, b = np.full((1, 1, 3), value, dtype), np.ones((1, 12, 3), dtype)
    b[..., 1], b[..., 2] = 0, 1e-308
    serial, chunked = (
        bp.linear_scan(a, b, method=way, chunk=None if way == "serial" else 4)
        for way in ("serial", "chunked")
    )
    np.testing.assert_allclose(chunked, serial, rtol=1e-6)
    assert not chunked[..., 1].any() or dtype == np.complex128, "what is 0 stays so, whatever multiplies it"
    if abs(value) <= 1:
        np.testing.assert_allclose(
            serial[..., 0], states_of(a.astype(complex), b.astype(complex))[..., 0], 1e-6
        )
    gradients = [
        bp.linear_scan_backward(a, serial, b, method=way, chunk=None if way == "serial" else 4)
        for way in ("serial", "chunked")
    ]
    for expected, actual in zip(*gradients, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_a_product_beyond_the_range_leaves_a_state_that_is_not() -> None:
    """Products of 1e200 overflow in a chunk; the states, which begin at 0 and end at a reset, do not."""
    a, b = np.full((1, 40, 2), 1e200), np.zeros((1, 40, 2))
    b[:, 30:] = 1e-300
    resets = np.zeros(40, bool)
    resets[31:] = True
    h = bp.linear_scan(a, b, resets=resets, method="chunked", chunk=8)
    np.testing.assert_array_equal(h, bp.linear_scan(a, b, resets=resets, method="serial"))
    assert np.isfinite(h).all() and h[0, 30, 0] > 0


@pytest.mark.parametrize("reverse", [False, True])
def test_nothing_passes_a_reset(device: Device, reverse: bool) -> None:
    """An infinite state before the reset, and a NaN factor at it, change neither states nor gradients."""
    order = slice(None, None, -1 if reverse else 1)
    a, b, gradient = np.full((1, 9, 2), 0.5), np.ones((2, 9, 2)), np.ones((2, 9, 2))
    resets = np.arange(9) == 4
    expected = states_of(np.where(resets[None, :, None], 0, a), b)
    a[:, 4], b[:, 3] = np.nan, np.inf
    clean = expected[:, 4:]
    a, b, resets = np.ascontiguousarray(a[:, order]), np.ascontiguousarray(b[:, order]), resets[order].copy()
    for way in WAYS:
        h = bp.linear_scan(a, b, None, reverse, None, resets, device=device, **way)
        by_a, by_b, _ = map(
            device.to_host,
            bp.linear_scan_backward(a, h, gradient, None, reverse, None, resets, device=device, **way),
        )
        np.testing.assert_array_equal(device.to_host(h)[:, order][:, 4:], clean)
        by_a, by_b = by_a[:, order], by_b[:, order]
        assert not by_a[:, 4].any() and np.isfinite(by_a[:, 5:]).all()
        np.testing.assert_array_equal(by_b[:, 3], 1)


def test_rows_for_all_and_arrays_of_other_libraries(rng: np.random.Generator) -> None:
    a, b = rng.random((4, 3)), rng.standard_normal((2, 4, 3))
    expected = states_of(np.broadcast_to(a, b.shape), b)
    np.testing.assert_allclose(bp.linear_scan(a, torch.from_numpy(b)), expected)
    np.testing.assert_allclose(bp.linear_scan(a[0], b.astype(complex))[:, 0], b[:, 0])
    assert bp.linear_scan_backward(a[0], expected, expected).a.shape == (3,)
    every_other = np.repeat(b, 2, axis=2)[..., ::2]
    np.testing.assert_allclose(bp.linear_scan(a, every_other), expected)


@pytest.mark.parametrize(
    ("dtype", "batch", "steps"), some_rows((np.complex128, 3, 5000), long=[(np.float32, 1, 18_000)])
)
def test_outputs_that_bypass_the_caches(
    dtype: type, batch: int, steps: int, rng: np.random.Generator
) -> None:
    """More than 4 MB of them, and work for several threads: of samples, or of the columns of one."""
    a, b, gradient = (random_of(rng, (batch, steps, 64), dtype) for _ in range(3))
    a *= 0.5
    wide, real = np.result_type(dtype, np.float64), np.finfo(dtype).dtype

    def check(actual: np.ndarray, wanted: np.ndarray) -> None:
        assert_close(actual.view(real), np.ascontiguousarray(wanted, dtype).view(real))

    expected = states_of(a.astype(wide), b.astype(wide))
    h = bp.linear_scan(a, b, device="host")
    check(h, expected)
    gradients = bp.linear_scan_backward(a, h, gradient, device="host")
    following = np.roll(a.conj(), -1, 1)[:, ::-1].astype(wide)
    by_b = states_of(following, gradient[:, ::-1].astype(wide))[:, ::-1]
    check(gradients.b, by_b)
    check(gradients.a, by_b * np.roll(expected, 1, 1).conj() * (np.arange(steps) > 0)[:, None])
