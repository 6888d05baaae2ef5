"""Products over whole sequences on the host, by each way in which their twins fill vectors and are cut."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import assert_close

from bppsa_cupy.devices import get_device
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.timescan import products

#: steps, inputs, outputs, batch
PROJECTIONS = {
    "no step": (0, 3, 4, 2),
    "no input": (3, 0, 5, 2),
    "no input of one sample": (3, 0, 5, 1),
    "one of each": (1, 1, 1, 1),
    "one sample": (67, 33, 20, 1),
    "one sample, cut by outputs and steps": (150, 150, 450, 1),
    "full lanes": (3, 38, 60, 32),
    "full lanes, cut by steps": (120, 20, 100, 48),
    "few inputs, lanes half full": (5, 8, 20, 25),
    "steps share vectors": (30, 33, 100, 7),
    "steps share vectors, cut by steps": (200, 65, 129, 5),
    "a large matrix": (3, 520, 510, 70),
    "a large matrix of full lanes": (2, 1030, 257, 16),
}

#: steps, rows, columns, batch, parts
GRADIENTS = {
    "one of each": (1, 1, 1, 1, 1),
    "one sample": (150, 20, 33, 1, 2),
    "one sample, cut by rows": (300, 300, 100, 1, 1),
    "full lanes, few columns": (40, 20, 20, 16, 3),
    "many lanes, few columns": (3, 7, 5, 144, 2),
    "full lanes": (40, 33, 65, 32, 2),
    "some lanes": (11, 100, 8, 7, 2),
    "a step fills more than a block": (2, 5, 70, 333, 2),
    "cut by rows": (80, 640, 64, 4, 2),
    "more panels than a task has": (5, 900, 9, 3, 1),
}


def guarded(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A copy of an array between NaNs, and all of it."""
    room = np.full(array.size + 64, np.nan, array.dtype)
    room[32:-32] = array.reshape(-1)
    return room[32:-32], room


def on_any_threads(compute: Callable[[], np.ndarray]) -> None:
    """Assert that what `compute` makes has the same bits on one thread and on two."""
    before, made = numba.get_num_threads(), []
    for count in {1, min(2, before)}:
        numba.set_num_threads(count)
        try:
            made.append(compute().tobytes())
        finally:
            numba.set_num_threads(before)
    assert made[0] == made[-1]


def launch(name: str, arrays: list[np.ndarray], inputs: int, *scalars: int) -> list[np.ndarray]:
    """What a kernel leaves in the arrays behind its inputs; it writes nothing beside that, and reads nothing
    beside the inputs that would show."""
    taken, rooms = zip(*map(guarded, arrays), strict=True)
    get_device("host").launch(KERNELS[name], *taken, *scalars)
    for number, (array, room) in enumerate(zip(arrays, rooms, strict=True)):
        assert np.isnan(room[:32]).all() and np.isnan(room[-32:]).all()
        assert number >= inputs or np.array_equal(room[32:-32], array.reshape(-1))
    return [made.reshape(array.shape) for made, array in zip(taken[inputs:], arrays[inputs:], strict=True)]


def project(sizes: tuple[int, ...], transposed: bool, biased: bool, dtype: object) -> np.ndarray:
    """The product by the twin, compared with NumPy's in float64."""
    steps, inputs, outputs, batch = sizes
    rng = np.random.default_rng(5)
    values = rng.standard_normal((steps, inputs + 1, batch)).astype(dtype)
    weight = rng.standard_normal((inputs, outputs) if transposed else (outputs, inputs)).astype(dtype)
    bias = rng.standard_normal(outputs if biased else 0).astype(dtype)
    out = np.full((steps, outputs, batch), np.nan, dtype)
    scalars = (steps, inputs + 1, inputs, outputs, batch, transposed, biased)
    (made,) = launch("sequence_project", [values, weight, bias, out], 3, *scalars)
    matrix = np.asarray(weight.T if transposed else weight, np.float64)
    expected = np.einsum("oi,tib->tob", matrix, values[:, :inputs].astype(np.float64))
    assert_close(made, expected + (bias.reshape(-1, 1) if biased else 0), length=inputs + 1)
    return made


def weight_gradient(
    sizes: tuple[int, ...], parts: int, shifted: bool, reverse: bool, dtype: object
) -> np.ndarray:
    """The partial sums by the twin, those of biases behind the others of a row; their sum compared with
    NumPy's in float64."""
    steps, rows, columns, batch = sizes
    rng = np.random.default_rng(6)
    delta = rng.standard_normal((steps, rows + 3, batch)).astype(dtype)
    values = rng.standard_normal((steps, columns + 1, batch)).astype(dtype)
    initial = rng.standard_normal((columns if shifted else 0, batch)).astype(dtype)
    outs = [np.full(shape, np.nan, dtype) for shape in ((parts, rows, columns), (parts, rows))]
    scalars = (steps, rows + 3, 2, rows, columns + 1, columns, batch, parts, shifted, reverse)
    weights, biases = launch("sequence_weight_gradient", [delta, values, initial, *outs], 3, *scalars)
    made = np.concatenate([weights, biases[:, :, None]], axis=2)
    seen = values[:, :columns].astype(np.float64)
    if shifted:
        first = initial[None].astype(np.float64)
        seen = np.concatenate([seen[1:], first] if reverse else [first, seen[:-1]])
    used = delta[:, 2 : 2 + rows].astype(np.float64)
    expected = np.einsum("trb,tkb->rk", used, seen)
    assert_close(made.sum(axis=0)[:, :-1], expected, length=steps * batch, scale=(steps * batch) ** 0.5)
    assert_close(
        made.sum(axis=0)[:, -1], used.sum(axis=(0, 2)), length=steps * batch, scale=(steps * batch) ** 0.5
    )
    return made


@pytest.mark.parametrize("name", PROJECTIONS)
@pytest.mark.parametrize("transposed, biased", [(False, True), (True, False)])
def test_projections_are_numpys(name: str, transposed: bool, biased: bool, dtype: object) -> None:
    on_any_threads(lambda: project(PROJECTIONS[name], transposed, biased, dtype))


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("shifted, reverse", [(False, False), (True, False), (True, True)])
def test_weight_gradients_are_numpys(name: str, shifted: bool, reverse: bool, dtype: object) -> None:
    *sizes, parts = GRADIENTS[name]
    on_any_threads(lambda: weight_gradient(tuple(sizes), parts, shifted, reverse, dtype))


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 70), st.integers(1, 70), st.integers(1, 50)),
    transposed=st.booleans(),
    reverse=st.booleans(),
)
def test_any_sizes(sizes: tuple[int, ...], transposed: bool, reverse: bool) -> None:
    project(sizes, transposed, True, "float64")
    parts = products.partial_sums(get_device("host"), sizes[0], sizes[3], sizes[1], sizes[2])
    weight_gradient(sizes, parts, transposed, reverse, "float64")
