"""`bppsa_cupy.jax.linear_scan` under JAX's transforms, against `lax.scan`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from linear_reference import random_of
from marks import some, some_rows

jax = pytest.importorskip("jax")
jnp = jax.numpy
RESETS = np.array([0, 0, 1, 0, 1], bool)


@pytest.fixture(autouse=True)
def in_float64() -> Any:
    with jax.enable_x64(True):
        yield


def by_lax(a: Any, b: Any, h0: Any, reverse: bool, lengths: Any, resets: Any) -> Any:
    """The scan by `lax.scan`."""
    steps = b.shape[1]
    a = jnp.broadcast_to(a, b.shape)
    if resets is not None:
        a = jnp.where(resets[None, :, None], 0, a)
    ends = np.full(b.shape[0], steps) if lengths is None else lengths
    live = np.broadcast_to(np.arange(steps)[None, :, None] < ends[:, None, None], b.shape)

    def step(carried: Any, of_step: Any) -> Any:
        a, b, live = of_step
        state = a * carried + b
        return jnp.where(live, state, carried), jnp.where(live, state, 0)

    by_time = tuple(jnp.moveaxis(x, 1, 0) for x in (a, b, live))
    return jnp.moveaxis(jax.lax.scan(step, h0, by_time, reverse=reverse)[1], 0, 1)


def loss_of(scan: Callable[..., Any], weights: Any) -> Callable[..., Any]:
    return lambda *arrays: jnp.sum(jnp.abs(scan(*arrays) * weights) ** 2)


@pytest.mark.parametrize(
    "dtype, rows, reverse, lengths, resets",
    some_rows(
        (np.float64, (1, 1), True, np.array([3, 5]), RESETS),
        long=[
            (np.float64, (2, 5), False, None, None),
            (np.complex128, (2, 5), True, None, RESETS),
            (np.complex128, (1, 5), False, np.array([4, 5]), None),
        ],
    ),
)
def test_values_and_derivatives(
    dtype: Any, rows: Any, reverse: bool, lengths: Any, resets: Any, rng: np.random.Generator
) -> None:
    from bppsa_cupy.jax import linear_scan

    arrays, way = (
        tuple(jnp.asarray(random_of(rng, shape, dtype)) for shape in ((*rows, 3), (2, 5, 3), (2, 3)))
        for _ in range(2)
    )
    weights = random_of(rng, (2, 5, 3), dtype)

    def ours(*arrays: Any) -> Any:
        return linear_scan(*arrays, reverse, lengths, resets)

    def theirs(*arrays: Any) -> Any:
        return by_lax(*arrays, reverse, lengths, resets)

    def outcomes(scan: Any, *arrays: Any) -> Any:
        gradient = jax.grad(loss_of(scan, weights), (0, 1, 2))
        return (
            scan(*arrays), jax.jvp(scan, arrays, way), gradient(*arrays),
            jax.grad(lambda a: sum(jnp.sum(jnp.abs(g) ** 2) for g in gradient(a, *arrays[1:])))(arrays[0]),
        )  # fmt: skip

    results, wanted = (jax.jit(partial(outcomes, scan))(*arrays) for scan in (ours, theirs))
    np.testing.assert_array_equal(ours(*arrays), results[0])  # without jit
    for mine, expected in zip(jax.tree.leaves(results), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-10, atol=1e-10 * (1 + abs(expected).max()))


def test_vmap_makes_one_batch(rng: np.random.Generator) -> None:
    from bppsa_cupy.jax import linear_scan

    a, b, h0 = (jnp.asarray(rng.standard_normal(shape)) for shape in ((4, 1, 5, 3), (4, 2, 5, 3), (2, 3)))

    @jax.jit
    def gradient(a: Any, b: Any, h0: Any) -> Any:
        return jax.grad(lambda *x: linear_scan(*x).sum(), (0, 1, 2))(a, b, h0)

    for axes in ((0, 0, None), (None, 0, None), (0, None, None)):
        taken = [x if axis == 0 or x.ndim == 2 else x[0] for x, axis in zip((a, b, h0), axes, strict=True)]
        batched = jax.vmap(gradient, axes)(*taken)
        for k in range(4):
            single = gradient(*(x[k] if axis == 0 else x for x, axis in zip(taken, axes, strict=True)))
            for mine, expected in zip(batched, single, strict=True):
                np.testing.assert_allclose(mine[k], expected, rtol=1e-12, atol=1e-12)


def test_no_steps() -> None:
    from bppsa_cupy.jax import linear_scan

    for resets in (None, np.zeros(0, bool), np.zeros((2, 0), bool)):
        result = linear_scan(np.zeros((2, 0, 3)), np.zeros((2, 0, 3)), resets=resets)
        assert result.shape == (2, 0, 3)


@pytest.mark.parametrize("reverse", some(False, long=[True]))
def test_nothing_passes_a_reset_or_an_end(reverse: bool) -> None:
    """Derivatives of first and second order are those of the parts, whatever lies beyond the cut."""
    from bppsa_cupy.jax import linear_scan

    a, b, weights = np.full((2, 6, 1), 0.5), np.ones((2, 6, 1)), np.arange(1.0, 7)[None, :, None]
    a[:, 3 if not reverse else 2] = np.nan  # at the reset, which never reads it
    b[:, 2 if not reverse else 3] = np.inf  # the state that the reset cuts off
    a[1, 5:] = b[1, 5:] = np.inf  # after the end
    resets, lengths = np.arange(6) == (3 if not reverse else 2), np.array([6, 5])
    part = slice(3, 5) if not reverse else slice(1, 3)

    def gradients(a: Any, b: Any) -> Any:
        def loss(a: Any, b: Any) -> Any:
            h = linear_scan(a, b, None, reverse, lengths, resets)
            return (h[:, part] * weights[:, part]).sum()

        return jax.grad(loss, (0, 1))(a, b)

    by_a, by_b = gradients(a, b)
    second = jax.grad(lambda a, b: sum((g[:, part] ** 2).sum() for g in gradients(a, b)), (0, 1))(a, b)
    for gradient in (by_a, by_b, *second):
        assert np.isfinite(gradient).all()
    # h_3 = 1, h_4 = 0.5 h_3 + 1, the loss is 4 h_3 + 5 h_4; from the other side 3 h_2 + 2 h_1
    wanted = {False: ((0, 5), (6.5, 5)), True: ((2, 0), (2, 4))}[reverse]
    np.testing.assert_allclose(by_a[:, part, 0], [wanted[0]] * 2)
    np.testing.assert_allclose(by_b[:, part, 0], [wanted[1]] * 2)
