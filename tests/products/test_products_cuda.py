"""Planned products on the stand-in for CuPy: where values are, cupyx's matrices, graphs."""

import cupy_stub
import numpy as np
import pytest
import scipy.sparse
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures

import bppsa_cupy as bp
from bppsa_cupy.devices import get_device
from bppsa_cupy.products.bilinear import OTHERS, MatmulForm, PairForm

A = scipy.sparse.csr_array(np.array([[1.0, 2.0, 0.0], [0.0, 3.0, 4.0]]))
B = scipy.sparse.csr_array(np.array([[5.0, 0.0], [6.0, 7.0], [0.0, 8.0]]))
EXPECTED = (A @ B).toarray()


@pytest.fixture
def gpu(stub, monkeypatch):
    """The device, whose arrays say that they are a GPU's."""
    monkeypatch.setattr(cupy_stub.ndarray, "__cuda_array_interface__", {}, raising=False)
    return stub


class CupyxMatrix:
    """What is asked of cupyx's matrices."""

    def __init__(self, gpu, matrix):
        self.data, self._matrix = gpu.asarray(matrix.data), matrix

    def get(self):
        return self._matrix


CupyxMatrix.__module__ = "cupyx.scipy.sparse._csr"


def test_values_are_computed_where_they_are(gpu):
    product = bp.plan_product(A, B)
    result = product(gpu.asarray(A.data), gpu.asarray(B.data))
    assert isinstance(result, gpu.xp.ndarray)
    np.testing.assert_array_equal(product.to_scipy(result).toarray(), EXPECTED)
    assert type(product(A.data, B.data)) is np.ndarray


def test_values_go_to_the_device_that_was_asked_for(gpu):
    result = bp.plan_product(A, B, device="cuda")(A.data, gpu.asarray(B.data))
    assert isinstance(result, gpu.xp.ndarray) and result.get().tolist() == EXPECTED.ravel().tolist()


def test_values_on_several_devices(gpu):
    product = bp.plan_product(A, B)
    with pytest.raises(
        bp.DeviceError, match="factor 1 are on host, but those of factor 2 are on cuda: move one"
    ):
        product(A.data, gpu.asarray(B.data))
    with pytest.raises(bp.DeviceError, match="out of ndarray: pass a cupy array"):
        product(gpu.asarray(A.data), gpu.asarray(B.data), out=np.empty(4))


def test_matrices_of_cupyx(gpu):
    a, b = CupyxMatrix(gpu, A), CupyxMatrix(gpu, B)
    product = bp.plan_product(a, b)
    result = product(a, b)
    assert isinstance(result, gpu.xp.ndarray)
    np.testing.assert_array_equal(product.to_scipy(result).toarray(), EXPECTED)
    with pytest.raises(bp.PlanMismatchError, match="factor 1 has pattern"):
        product(b, b)
    by_columns = bp.plan_product(CupyxMatrix(gpu, A.tocsc()), b)
    result = by_columns(gpu.asarray(A.tocsc().data), b)
    np.testing.assert_array_equal(by_columns.to_scipy(result).toarray(), EXPECTED)


def test_a_bound_call_becomes_a_graph(gpu):
    product = bp.plan_product(A, B)
    a, b, out = gpu.asarray(A.data), gpu.asarray(B.data), gpu.xp.empty(4)
    call = product.bind(a, b, out=out)
    for factor in (1, 2, 3):
        a[...] = gpu.asarray(factor * A.data)
        call()
        np.testing.assert_array_equal(product.to_scipy(out).toarray(), factor * EXPECTED)


def test_forms_give_the_results_of_the_host(gpu):
    """Products and gradients by each operand, of a batch and of shared values."""
    rng, pair, matmul = np.random.default_rng(0), PairForm(A.tocsc(), B, None, "csc"), MatmulForm(A.tocsc())
    for form, shapes in ((pair, [(n,) for n in pair.sizes]), (matmul, [(A.nnz,), (3, 4), (2, 4)])):
        for wanted, (u, v) in enumerate(OTHERS):
            arrays = [rng.standard_normal((2, *shapes[u])), rng.standard_normal(shapes[v])]
            host = form.evaluate(get_device("host"), wanted, *arrays)
            result = form.evaluate(gpu, wanted, *map(gpu.asarray, arrays))
            np.testing.assert_allclose(result.get(), host, rtol=1e-13, atol=1e-13)
