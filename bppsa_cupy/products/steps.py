"""The steps of a call: which values are brought into the order of blocks, and which products are computed.

The orders of values that a caller gives and gets are in the maps of the products, so that they cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bppsa_cupy.csr import Pattern, index_dtype
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.plan.product import Product
from bppsa_cupy.products.blocks import coarsen, csr_order, csr_places, inverse, positions, refine, transpose
from bppsa_cupy.products.factors import Factor
from bppsa_cupy.products.multiplications import Multiplication, as_terms
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Kernel
from bppsa_cupy.scan.launches import IndexMaps, Matrix, kernel_and_arguments

LISTED = "terms", "masked"

#: Terms per entry, on average, up to which the host is faster without jumps at entries. Measured on one core.
PAIRED_TERMS = 4


@dataclass(frozen=True, eq=False)
class Step:
    """One operation on the values of operands: factors have the numbers 0, 1, …, results the ones after.

    Attributes
    ----------
    operands : tuple of int
        The numbers of A and B, or of the single operand of a selection.
    nnz : int
        The number of values in the result.
    index : ndarray of int or None
        For a selection: the result is values[index] of the operand.
    many, single : Product or None
        For a product: its maps, in the order of the values, for several samples and for one sample.
    block : tuple of int
        Rows, inner size and columns of the blocks.
    transposed : tuple of bool
        Whether the blocks of A, and those of C, are stored transposed.
    places : tuple of ndarray
        For a product of blocks: the position of each block of C, and the distance between its stored rows.
    """

    operands: tuple[int, ...]
    nnz: int
    index: np.ndarray | None = None
    many: Product | None = None
    single: Product | None = None
    block: tuple[int, int, int] = (1, 1, 1)
    transposed: tuple[bool, bool] = (False, False)
    places: tuple[np.ndarray, ...] = ()

    def bind(
        self,
        device: Device,
        maps: IndexMaps,
        operands: Sequence[Array],
        result: Array,
        batch: int,
        names: bool,
    ) -> Callable[..., None]:
        """Return the call that computes the result; it takes the operands and the result if `names`."""
        if self.index is not None:
            (source,) = operands
            width = source.shape[1] if source.ndim == 2 else 1
            index = maps.upload(self.index)[0]
            selection = index, source, result, source.shape[0], self.nnz, width
            return _bound(device, KERNELS["product_reorder"], ("a", "c"), selection, names)
        a, b = operands
        batched = a.ndim == 2 or b.ndim == 2
        product = self.many if batched and batch > 1 else self.single
        assert product is not None
        if self.places:
            lists = maps.upload(*product.maps.values(), *self.places)
            sizes = product.pattern.nnz, product.multiply_adds, product.a.nnz, product.b.nnz
            width = batch if batched else 1
            kernel = KERNELS["product_blocks"]
            flags = *self.transposed, a.ndim == 2, b.ndim == 2
            arguments: Sequence[Any] = (*lists, a, b, result, *sizes, *self.block, width, *flags)
        elif device.name == "host" and not (batched and batch > 1) and self.pairs is not None:
            pointer = maps.upload(product.maps["term_ptr"])[0]
            sizes = self.nnz, self.pairs.size, a.size, b.size
            kernel, arguments = KERNELS["product_pairs"], (pointer, self.pairs, a, b, result, *sizes)
        else:
            both = Matrix(product.a, a), Matrix(product.b, b)
            kernel, *arguments = kernel_and_arguments(maps, product, *both, result, batch)
        return _bound(device, kernel, ("a", "b", "c"), arguments, names)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "pairs"}

    @cached_property
    def pairs(self) -> np.ndarray | None:
        """The array of `product_pairs`, (terms,) int64: both positions of a term of the list for one sample,
        negative at an entry's last term. None where an entry has no term, or the list is faster."""
        if self.single is None or self.single.kind not in LISTED:
            return None
        pointer, left, right = self.single.maps.values()
        is_long = left.size > PAIRED_TERMS * (pointer.size - 1)
        if is_long or pointer.dtype != np.int32 or (pointer[1:] == pointer[:-1]).any():
            return None
        pairs = left.astype(np.int64)
        pairs[pointer[1:] - 1] |= -(2**31)
        pairs <<= 32
        pairs |= right
        return pairs


def _bound(
    device: Device, kernel: Kernel, names: tuple[str, ...], arguments: Sequence[Any], is_open: bool
) -> Callable[..., None]:
    return device.bind_open(kernel, names, *arguments) if is_open else device.bind(kernel, *arguments)


def make_steps(
    factors: Sequence[Factor], multiplications: Sequence[Multiplication], out: Pattern, out_format: str
) -> list[Step]:
    """The steps that compute the product, the last one its values.

    Parameters
    ----------
    out : Pattern
        The pattern of the product.
    out_format : str
        The order of its values: "csr", "csc", or "bsr" of the last multiplication's blocks.
    """
    n, steps = len(factors), list[Step]()
    number = dict(enumerate(range(n)))  # of each operand of the multiplications, among those of steps
    selected: dict[tuple[int, bytes], int] = {}
    # The size of blocks in which the result of a multiplication of elements is read.
    readers = {
        operand: block
        for m in multiplications
        for operand, block in ((m.left, (m.block[0], m.block[1])), (m.right, (m.block[1], m.block[2])))
    }

    def add(step: Step) -> int:
        steps.append(step)
        return n + len(steps) - 1

    def select(operand: int, index: np.ndarray) -> int:
        key = operand, index.tobytes()
        if key not in selected:
            selected[key] = add(Step((operand,), index.size, narrow(index)))
        return selected[key]

    def read(operand: int, rows: int, columns: int, listed: bool) -> tuple[int, np.ndarray | None]:
        """The number of an operand, and the order of its entries or blocks."""
        transposed = operand < 0
        operand, rows, columns = (~operand, columns, rows) if transposed else (operand, rows, columns)
        if operand >= n:
            return number[operand], None
        order, index = factors[operand].placement(rows, columns)
        source = operand if index is None else select(operand, index)
        if transposed:
            entries = transpose(coarsen(factors[operand].pattern, rows, columns))[1]
            order = entries if order is None else order[entries]
        if order is not None and not listed:
            return select(source, order), None
        return source, order

    for k, m in enumerate(multiplications, n):
        (rows, inner, columns), pattern = m.block, m.many.pattern
        places: tuple[np.ndarray, ...] = ()
        many, single = m.many, m.single
        is_last = k == n + len(multiplications) - 1
        order, by_columns = None, False
        if is_last:
            order, places, by_columns = _result_order(m, out, out_format)
        elif not m.is_blocked and readers[k] != (1, 1):
            order = csr_order(coarsen(pattern, *readers[k]), *readers[k])
            many = single = as_terms(single)
        elif m.is_blocked:
            places = _natural_places(pattern, rows, columns)
        listed = {many.kind, single.kind} <= {*LISTED}
        left, left_order = read(m.left, rows, inner, listed)
        right, right_order = read(m.right, inner, columns, listed)
        inside = order if listed and not m.is_blocked else None
        orders = left_order, right_order, inside
        arranged = reorder(single, *orders)
        several = arranged if many is single else reorder(many, *orders)
        nnz, flags = pattern.nnz * rows * columns, (m.left < 0, by_columns)
        narrowed = tuple(narrow(array) for array in places)
        number[k] = add(Step((left, right), nnz, None, several, arranged, m.block, flags, narrowed))
        if order is not None and inside is None:
            number[k] = select(number[k], order)
    return steps


def narrow(array: np.ndarray) -> np.ndarray:
    """Positions in the narrowest dtype of maps."""
    return array.astype(index_dtype(int(array.max(initial=0))), copy=False)


def result_pattern(multiplication: Multiplication) -> Pattern:
    """The pattern of the elements of a multiplication's result."""
    rows, _, columns = multiplication.block
    return refine(multiplication.many.pattern, rows, columns)


def _natural_places(blocks: Pattern, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """The places of blocks that lie one after another."""
    return np.arange(blocks.nnz) * (rows * columns), np.full(blocks.nnz, columns)


def _result_order(
    m: Multiplication, out: Pattern, out_format: str
) -> tuple[np.ndarray | None, tuple[np.ndarray, ...], bool]:
    """Which values of the last product the result has, None for all in their order; where blocks lie,
    and whether by columns."""
    (rows, _, columns), blocks = m.block, m.many.pattern
    full = result_pattern(m)
    places: tuple[np.ndarray, ...] = ()
    if m.is_blocked and out_format == "bsr":
        return None, _natural_places(blocks, rows, columns), False
    if m.is_blocked and out_format == "csc" and out == full:
        by_columns, entries = transpose(blocks)
        return None, tuple(p[inverse(entries)] for p in csr_places(by_columns, columns, rows)), True
    if m.is_blocked:
        places = csr_places(blocks, rows, columns)
    order = None if out == full else positions(full, out)
    if out_format == "csc":
        entries = transpose(out)[1]
        order = entries if order is None else order[entries]
    return order, places, False


def reorder(
    product: Product, left: np.ndarray | None, right: np.ndarray | None, result: np.ndarray | None
) -> Product:
    """A term list over values in other orders: the position of the value of each entry of A and B, and the
    entry of each value of C. None leaves an order as it is."""
    if left is right is result is None:
        return product
    pointer, a_position, b_position = product.maps.values()
    dtype = pointer.dtype
    if result is not None:
        lengths, first = np.diff(pointer)[result], pointer[:-1][result]
        pointer = np.concatenate([[0], np.cumsum(lengths)]).astype(dtype)
        terms = np.repeat(first - pointer[:-1], lengths) + np.arange(pointer[-1], dtype=dtype)
        a_position, b_position = a_position[terms], b_position[terms]
    if left is not None:
        a_position = left.astype(dtype)[a_position]
    if right is not None:
        b_position = right.astype(dtype)[b_position]
    maps = {"term_ptr": pointer, "a_position": a_position, "b_position": b_position}
    return replace(product, maps=maps)
