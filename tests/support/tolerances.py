"""How close two computations of one value must be: one table by dtype, scaled by contraction length."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Relative tolerance of one rounded operation, with room for a different order of a short sum.
RELATIVE = {np.dtype(np.float32): 2e-6, np.dtype(np.float64): 1e-14}


def relative(dtype: Any, length: int = 1) -> float:
    """Relative tolerance of sums of `length` products in `dtype`: rounding errors add as their root."""
    return RELATIVE[np.dtype(dtype)] * max(1.0, float(length)) ** 0.5


def assert_close(
    actual: Any, expected: Any, length: int = 1, *, scale: float | None = None, label: str = ""
) -> None:
    """Assert that `actual` has `expected`'s shape and values, as exact as its own dtype can be.

    length  terms of the longest sum behind one value (features, entries of a row, steps of a scan)
    scale   magnitude of the terms; by default the largest of `expected`, since a sum that cancels
            keeps the rounding errors of its terms
    label   named in the message
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, f"{label}: shapes {actual.shape} and {expected.shape}"
    if not expected.size:
        return
    if actual.dtype.kind != "f":
        np.testing.assert_array_equal(actual, expected, err_msg=label)
        return
    tolerance = relative(actual.dtype, length)
    if scale is None:
        finite = np.abs(expected[np.isfinite(expected)])
        scale = float(finite.max()) if finite.size else 0.0
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * scale, err_msg=label)
