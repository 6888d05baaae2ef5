"""The scan's twins against SciPy and NumPy; the CUDA texts are compared with the twins."""

import numpy as np
import pytest
import scipy.sparse

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import get_device
from bppsa_cupy.devices.base import LARGE
from bppsa_cupy.raw_kernels import KERNELS


def random_pattern(rng, rows, columns, density):
    return Pattern.from_scipy(scipy.sparse.random_array((rows, columns), density=density, rng=rng))


def values(rng, nnz, batch, batched, dtype):
    return rng.standard_normal((nnz, batch) if batched else nnz).astype(dtype)


def dense(pattern, data, sample):
    column = data[:, sample] if data.ndim == 2 else data
    return pattern.to_scipy(column.astype(np.float64)).toarray()


@pytest.fixture(params=[1, 35])
def batch(request):
    return request.param


@pytest.fixture
def device():
    return get_device("host")


@pytest.fixture
def tolerance(dtype):
    return {"float32": 2e-5, "float64": 1e-13}[np.dtype(dtype).name]


@pytest.mark.parametrize("batched", [0, 1])
@pytest.mark.parametrize("affine", [0, 1])
@pytest.mark.parametrize("rows, columns, density", [(7, 5, 0.5), (1, 1, 1.0), (40, 33, 0.3), (3, 4, 0.0)])
def test_csr_spmv(device, dtype, rng, batch, tolerance, batched, affine, rows, columns, density):
    matrix = random_pattern(rng, rows, columns, density)
    data = values(rng, matrix.nnz, batch, batched, dtype)
    x = rng.standard_normal((columns, batch)).astype(dtype)
    addend = rng.standard_normal((rows if affine else 0, batch)).astype(dtype)
    y = device.empty((rows, batch), dtype)
    device.launch(
        KERNELS["csr_spmv"], device.upload_index(matrix.indptr), device.upload_index(matrix.indices),
        device.asarray(data), device.asarray(x), device.asarray(addend), y,
        rows, columns, matrix.nnz, batch, batched, affine,
    )  # fmt: skip
    for sample in range(batch):
        expected = dense(matrix, data, sample) @ x[:, sample] + (addend[:, sample] if affine else 0)
        np.testing.assert_allclose(device.to_host(y)[:, sample], expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("batch", [16, 64])
def test_outputs_that_bypass_the_caches(dtype, rng, batch):
    device = get_device("host")
    entries = 2 * LARGE // (batch * np.dtype(dtype).itemsize)
    a, b = rng.standard_normal(entries).astype(dtype), rng.standard_normal((7, batch)).astype(dtype)
    indices = rng.integers(0, 7, entries, dtype=np.int32)
    c = device.zeros((entries, batch), dtype)
    assert c.ctypes.data % 64 == 0
    device.launch(
        KERNELS["product_scale_columns"], device.upload_index(indices), a, b, c, 7, entries, batch, 0, 1
    )
    for part in range(0, entries, entries // 3):
        np.testing.assert_array_equal(
            c[part : part + 99], a[part : part + 99, None] * b[indices[part : part + 99]]
        )
