"""From a planned product to the launch of its kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

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
