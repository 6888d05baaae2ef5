"""Sparse matrices, what they were given as, and the launches of their products."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.plan import Product
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.records.record import JacobianRecord


class Matrix(NamedTuple):
    """A matrix of the scan: its pattern and values, (nnz,) shared or (nnz, B)."""

    pattern: Pattern
    values: Array

    @property
    def batched(self) -> bool:
        return self.values.ndim == 2


def matrix_of(value: Any) -> Matrix | None:
    """Pattern and values of a JacobianRecord, a (Pattern, values) pair or a sparse matrix of SciPy or cupyx;
    None where it is none of them.

    A sparse matrix of any format is brought to CSR with rising columns, duplicates summed, as SciPy does;
    stored zeros stay. One of cupyx that has this form keeps its values on the GPU. The values of a pair are
    as they were given: nothing is checked of them. Raises ShapeError where the matrix has not two axes.
    """
    if isinstance(value, JacobianRecord):
        return Matrix(value.pattern, value.data)
    if isinstance(value, (tuple, list)):
        is_pair = len(value) == 2 and isinstance(value[0], Pattern)
        return Matrix(value[0], value[1]) if is_pair else None
    host = on_host(value)
    if host is None:
        return None
    csr = scipy.sparse.csr_array(host, copy=True)
    in_order = host.format == "csr" and csr.has_canonical_format
    csr.sum_duplicates()
    return Matrix(Pattern(csr.shape, csr.indptr, csr.indices), value.data if in_order else csr.data)


def on_host(value: Any) -> Any:
    """A sparse matrix of SciPy or cupyx as one of SciPy; None where it is none of them."""
    if scipy.sparse.issparse(value):
        return value
    if type(value).__module__.startswith("cupyx."):
        return value.get()
    return None


class IndexMaps:
    """Device copies of integer arrays, one a host array and width; the host arrays are kept alive."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._copies: dict[tuple[int, int], tuple[np.ndarray, Array]] = {}

    def upload(self, *arrays: np.ndarray) -> list[Array]:
        """The arrays on the device, all of the widest one's width, as a kernel takes them."""
        width = max(array.dtype.itemsize for array in arrays)
        return [self._copy(array, width) for array in arrays]

    def _copy(self, array: np.ndarray, width: int) -> Array:
        key = id(array), width
        if key not in self._copies:
            widened = array.astype(np.int32 if width == 4 else np.int64, copy=False)
            self._copies[key] = array, self.device.upload_index(widened)
        return self._copies[key][1]


def bind_product(
    device: Device, maps: IndexMaps, product: Product, a: Matrix, b: Matrix, c: Array, batch: int
) -> Launch:
    """The launch of C = A·B by the kernel of the product's kind.

    Parameters
    ----------
    c : array
        Written: (nnz,) if a and b are both shared, else (nnz, batch).
    """
    return device.bind(*kernel_and_arguments(maps, product, a, b, c, batch))


def kernel_and_arguments(
    maps: IndexMaps, product: Product, a: Matrix, b: Matrix, c: Array, batch: int
) -> tuple[Any, ...]:
    """The kernel of C = A·B and its arguments, `bind_product`'s."""
    width = batch if a.batched or b.batched else 1
    rows, inner = a.pattern.shape
    columns = b.pattern.shape[1]
    sizes = (a.pattern.nnz, b.pattern.nnz)
    patterns = (a.pattern.indptr, a.pattern.indices, b.pattern.indptr, product.pattern.indptr)
    arguments: tuple[Any, ...]
    if product.kind == "scale_rows":
        arguments = (*maps.upload(b.pattern.indptr), a.values, b.values, c, rows, b.pattern.nnz)
    elif product.kind == "scale_columns":
        arguments = (*maps.upload(a.pattern.indices), a.values, b.values, c, columns, a.pattern.nnz)
    elif product.kind == "dense":
        arguments = (a.values, b.values, c, rows, inner, columns)
    elif product.kind in ("terms", "masked"):
        terms = maps.upload(*(product.maps[name] for name in ("term_ptr", "a_position", "b_position")))
        arguments = (*terms, a.values, b.values, c, product.pattern.nnz, terms[1].size, *sizes)
    elif product.kind in ("select_rows", "full_rows"):
        a_indptr, a_indices, b_indptr, c_indptr = maps.upload(*patterns)
        arguments = (
            a_indptr, a_indices, a.values, b_indptr, b.values, c_indptr, c,
            rows, inner, *sizes, product.pattern.nnz,
        )  # fmt: skip
    else:
        a_indptr, a_indices, b_indptr, c_indptr, b_indices, c_indices = maps.upload(
            *patterns, b.pattern.indices, product.pattern.indices
        )
        arguments = (
            a_indptr, a_indices, a.values, b_indptr, b_indices, b.values, c_indptr, c_indices, c,
            rows, inner, columns, *sizes, product.pattern.nnz,
        )  # fmt: skip
    kind = "terms" if product.kind == "masked" else product.kind
    return KERNELS[f"product_{kind}"], *arguments, width, a.batched, b.batched


def bind_spmv(device: Device, maps: IndexMaps, a: Matrix, x: Array, addend: Array | None, y: Array) -> Launch:
    """The launch of y = A x, plus `addend` where given; x (columns, B), addend and y (rows, B)."""
    rows, columns = a.pattern.shape
    indptr, indices = maps.upload(a.pattern.indptr, a.pattern.indices)
    affine = addend is not None
    return device.bind(
        KERNELS["csr_spmv"], indptr, indices, a.values, x, addend if affine else x[:0], y,
        rows, columns, a.pattern.nnz, x.shape[1], a.batched, affine,
    )  # fmt: skip
