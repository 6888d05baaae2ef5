"""Products of matrices on the host: NumPy's numbers, and the same bits on any number of threads."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from bppsa_cupy.devices import get_device


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m, k, n", [(0, 3, 2), (1, 1, 1), (7, 3, 5), (1000, 64, 130), (65, 20_001, 33)])
def test_products_are_numpys_and_know_no_threads(m: int, k: int, n: int, dtype: str) -> None:
    device, rng = get_device("host"), np.random.default_rng(0)
    left, right = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    exact = left.astype(np.float64) @ right.astype(np.float64)
    cases = {
        "as they lie": (left, right),
        "turned": (np.asfortranarray(left), right),
        "by a turned one": (left, np.asfortranarray(right)),
        "of columns": (np.concatenate([left, left], 1)[:, :k], right),
    }
    for name, (first, second) in cases.items():
        found = []
        for threads in (1, 2):
            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
            found.append(device.matmul(first, second, np.full((m, n), np.nan, dtype)).copy())
        np.testing.assert_array_equal(*found, err_msg=name)
        np.testing.assert_allclose(found[0], exact, atol=1e-12 if dtype == "float64" else 1e-3, err_msg=name)
    wide = np.zeros((m, n + 3), dtype)
    device.matmul(left, right, wide[:, 3:])
    np.testing.assert_allclose(wide[:, 3:], exact, atol=1e-12 if dtype == "float64" else 1e-3)
