"""From a planned product to the launch of its kernel."""

from __future__ import annotations

from typing import NamedTuple

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.plan import Product
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.scan.maps import IndexMaps


class Matrix(NamedTuple):
    """A matrix of the scan: its pattern and values, (nnz,) shared or (nnz, B)."""

    pattern: Pattern
    values: Array

    @property
    def batched(self) -> bool:
        return self.values.ndim == 2


def bind_product(
    device: Device, maps: IndexMaps, product: Product, a: Matrix, b: Matrix, c: Array, batch: int
) -> Launch:
    """The launch of C = A·B by the kernel of the product's kind.

    c  out, (nnz,) where a and b are both shared, else (nnz, batch)
    """
    width = batch if a.batched or b.batched else 1
    flags = (a.batched, b.batched)
    rows, inner = a.pattern.shape
    columns = b.pattern.shape[1]
    if product.kind == "scale_rows":
        (indptr,) = maps.upload(b.pattern.indptr)
        return device.bind(
            KERNELS["product_scale_rows"], indptr, a.values, b.values, c, rows, b.pattern.nnz, width, *flags
        )
    if product.kind == "scale_columns":
        (indices,) = maps.upload(a.pattern.indices)
        return device.bind(
            KERNELS["product_scale_columns"],
            indices, a.values, b.values, c, columns, a.pattern.nnz, width, *flags,
        )  # fmt: skip
    if product.kind == "dense":
        return device.bind(
            KERNELS["product_dense"], a.values, b.values, c, rows, inner, columns, width, *flags
        )
    sizes = (a.pattern.nnz, b.pattern.nnz)
    if product.kind == "terms":
        term_ptr, a_position, b_position = maps.upload(
            product.maps["term_ptr"], product.maps["a_position"], product.maps["b_position"]
        )
        return device.bind(
            KERNELS["product_terms"], term_ptr, a_position, b_position, a.values, b.values, c,
            product.pattern.nnz, a_position.size, *sizes, width, *flags,
        )  # fmt: skip
    patterns = (a.pattern.indptr, a.pattern.indices, b.pattern.indptr, product.pattern.indptr)
    if product.kind in ("select_rows", "full_rows"):
        a_indptr, a_indices, b_indptr, c_indptr = maps.upload(*patterns)
        return device.bind(
            KERNELS[f"product_{product.kind}"],
            a_indptr, a_indices, a.values, b_indptr, b.values, c_indptr, c,
            rows, inner, *sizes, product.pattern.nnz, width, *flags,
        )  # fmt: skip
    a_indptr, a_indices, b_indptr, c_indptr, b_indices, c_indices = maps.upload(
        *patterns, b.pattern.indices, product.pattern.indices
    )
    return device.bind(
        KERNELS["product_row_wise"], a_indptr, a_indices, a.values, b_indptr, b_indices, b.values, c_indptr,
        c_indices, c, rows, inner, columns, *sizes, product.pattern.nnz, width, *flags,
    )  # fmt: skip


def bind_spmv(device: Device, maps: IndexMaps, a: Matrix, x: Array, addend: Array | None, y: Array) -> Launch:
    """The launch of y = A x, plus `addend` where given; x (columns, B), addend and y (rows, B)."""
    rows, columns = a.pattern.shape
    indptr, indices = maps.upload(a.pattern.indptr, a.pattern.indices)
    affine = addend is not None
    return device.bind(
        KERNELS["csr_spmv"], indptr, indices, a.values, x, addend if affine else x[:0], y,
        rows, columns, a.pattern.nnz, x.shape[1], a.batched, affine,
    )  # fmt: skip
