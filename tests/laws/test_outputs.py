"""Every function that writes into arrays of the caller's: the result is that of new arrays, or the array is
refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse

import bppsa_cupy as bp

RNG = np.random.default_rng(0)
A, B, GRADIENT = RNG.standard_normal((3, 2, 6, 4))
H0 = RNG.standard_normal((2, 4))
MATRIX = scipy.sparse.random_array((5, 5), density=0.5, rng=0, format="csr")
PRODUCT = bp.plan_product(MATRIX, MATRIX)


class Case(NamedTuple):
    """A function of named arrays, and the names of those that it writes, in the order of its results."""

    call: Callable[..., Any]
    arrays: dict[str, np.ndarray]
    outputs: tuple[str, ...] = ("out",)


def scan(a: Any, b: Any, h0: Any, out: Any = None, **options: Any) -> Any:
    return bp.linear_scan(a, b, h0, out=out, **options)


def chunked(a: Any, b: Any, h0: Any, out: Any = None) -> Any:
    return scan(a, b, h0, out, method="chunked", chunk=2)


def scan_back(
    a: Any, h: Any, gradient: Any, h0: Any, by_a: Any = None, by_b: Any = None, by_h0: Any = None
) -> Any:
    return bp.linear_scan_backward(a, h, gradient, h0, out=(by_a, by_b, by_h0))  # type: ignore[arg-type]


CASES = {
    "linear_scan": Case(scan, {"a": A, "b": B, "h0": H0}),
    "linear_scan by chunks": Case(chunked, {"a": A, "b": B, "h0": H0}),
    "linear_scan_backward": Case(
        scan_back, {"a": A, "h": B, "gradient": GRADIENT, "h0": H0}, ("by_a", "by_b", "by_h0")
    ),
    "product": Case(
        lambda left, right, out=None: PRODUCT(left, right, out=out),
        {"left": MATRIX.data.copy(), "right": MATRIX.data.copy()},
    ),
}
PAIRS = [(name, output) for name, case in CASES.items() for output in case.outputs]


def results(case: Case, **arguments: Any) -> dict[str, np.ndarray]:
    values = case.call(**arguments)
    values = values if isinstance(values, tuple) else (values,)
    return dict(zip(case.outputs, values, strict=True))


@pytest.mark.parametrize("name, output", PAIRS)
def test_an_array_of_its_own_is_filled(name: str, output: str) -> None:
    case = CASES[name]
    wanted = results(case, **case.arrays)
    room = np.full(wanted[output].size + 2, 7.0).astype(wanted[output].dtype)
    out = room[1:-1].reshape(wanted[output].shape)
    actual = results(case, **case.arrays, **{output: out})
    assert actual[output] is out and room[0] == room[-1] == 7
    for key in wanted:
        np.testing.assert_array_equal(actual[key], wanted[key])


@pytest.mark.parametrize("name, output", PAIRS)
def test_an_array_that_overlaps_another_is_refused(name: str, output: str) -> None:
    case = CASES[name]
    wanted = results(case, **case.arrays)
    size, dtype = wanted[output].size, wanted[output].dtype
    for key, array in [*case.arrays.items(), *((k, v) for k, v in wanted.items() if k != output)]:
        for shift in (0, 1):
            room = np.zeros(size + array.size + 1, np.result_type(array, dtype))
            taken = room[: array.size].reshape(array.shape)
            taken[...] = array
            before, out = room.copy(), room[shift : shift + size].reshape(wanted[output].shape)
            with pytest.raises(bp.ShapeError, match="shares memory"):
                case.call(**{**case.arrays, key: taken, output: out})
            np.testing.assert_array_equal(room, before)


@pytest.mark.parametrize("name, output", PAIRS)
def test_an_array_that_cannot_be_written_is_refused(name: str, output: str, tmp_path: Any) -> None:
    case = CASES[name]
    wanted = results(case, **case.arrays)[output]
    file = tmp_path / "out.npy"
    np.save(file, np.zeros_like(wanted))
    locked = np.zeros_like(wanted)
    locked.flags.writeable = False
    wide = np.zeros((*wanted.shape, 2), wanted.dtype)
    for wrong in (
        locked, np.load(file, mmap_mode="r"), wide[..., 0], np.ma.zeros(wanted.shape), wanted[..., None],
        np.zeros(wanted.shape, np.int64), wanted.tolist(),
    ):  # fmt: skip
        with pytest.raises(bp.BppsaError, match="out"):
            case.call(**case.arrays, **{output: wrong})
    written = np.load(file, mmap_mode="r+")
    np.testing.assert_array_equal(results(case, **case.arrays, **{output: written})[output], wanted)
