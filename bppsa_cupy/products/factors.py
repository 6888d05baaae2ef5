"""What a caller gives as a factor: its pattern when a product is planned, its values when it is computed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device, device_of
from bppsa_cupy.errors import ArgumentError, DeviceError, PlanMismatchError, ShapeError
from bppsa_cupy.products.blocks import coarsen, csr_order, inverse
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.scan.launches import matrix_of, on_host

REALS = np.dtype(np.float32), np.dtype(np.float64)


#: SciPy's formats whose values are an array in an order that follows from others: these.
STRUCTURES = {"csr": ("indptr", "indices"), "csc": ("indptr", "indices"), "bsr": ("indptr", "indices"),
              "coo": ("row", "col")}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Factor:
    """A factor as it was planned.

    Attributes
    ----------
    pattern : Pattern
        Its CSR pattern.
    kind : type or None
        SciPy's class of the matrix that was given, None for another thing.
    format : str
        SciPy's name of its format; "csr" for another thing.
    structure : tuple of array
        Copies of the arrays that `format` has beside its values, () where it has none.
    shape : tuple of int
        Shape of its values, before samples.
    order : array or None
        (nnz,) which of its values, flattened, each entry of the pattern has; None where they are in the
        pattern's order.
    """

    pattern: Pattern
    kind: type | None
    format: str
    structure: tuple[np.ndarray, ...]
    shape: tuple[int, ...]
    order: np.ndarray | None

    @classmethod
    def of_pattern(cls, pattern: Pattern, kind: type | None = None) -> Factor:
        """Make a factor whose values are in the order of the pattern."""
        return cls(pattern, kind, "csr", (pattern.indptr, pattern.indices), (pattern.nnz,), None)

    @property
    def block(self) -> tuple[int, int] | None:
        """Rows and columns of its blocks, where it is BSR."""
        return self.shape[1:] if len(self.shape) == 3 else None

    def placement(self, rows: int, columns: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """How its values are read as blocks of this size: the block that each block of the pattern is among
        them, None where that is its number; or, where blocks do not lie together, None and the position of
        each element of the blocks, to be brought into their order."""
        places = self.order
        if rows * columns > 1:
            places = csr_order(coarsen(self.pattern, rows, columns), rows, columns)
            places = places if self.order is None else self.order[places]
        if places is None:
            return None, None
        blocks, size = places.reshape(-1, rows * columns), rows * columns
        first = blocks[:, 0] // size
        if not np.array_equal(blocks, first[:, None] * size + np.arange(size)):
            return None, places
        return (None if np.array_equal(first, np.arange(first.size)) else first), None

    def is_of(self, matrix: Any) -> bool:
        """Whether a matrix of SciPy has the pattern and the order that were planned, by its arrays' bytes."""
        return (
            matrix.format == self.format
            and bool(self.structure)
            and matrix.shape == self.pattern.shape
            and matrix.data.shape == self.shape
            and all(map(np.array_equal, self.structure, _structure(matrix)))
        )


def _structure(matrix: Any) -> list[np.ndarray]:
    return [getattr(matrix, name) for name in STRUCTURES[matrix.format]]


def factor_of(name: str, matrix: Any) -> Factor:
    """A factor from a Pattern, a JacobianRecord, or a matrix of SciPy or cupyx in any format.

    Stored zeros are entries. Raises ArgumentError for other types, and ShapeError for duplicate entries.
    """
    if isinstance(matrix, Pattern):
        return Factor.of_pattern(matrix)
    if isinstance(matrix, JacobianRecord):
        return Factor.of_pattern(matrix.pattern)
    host = on_host(matrix)
    if host is None:
        raise ArgumentError(
            f"plan_product got {name} of {type(matrix).__name__}: pass a Pattern, a JacobianRecord, or a "
            "SciPy or cupyx sparse matrix"
        )
    kind = type(host) if host is matrix else None
    if host.format == "csr":
        with suppress(ShapeError):  # of rows that are not sorted
            return Factor.of_pattern(Pattern(host.shape, host.indptr.copy(), host.indices.copy()), kind)
    try:
        if host.format in STRUCTURES and hasattr(host, "check_format"):
            host.check_format(full_check=True)
        if len(host.shape) != 2:
            raise ValueError(f"it has {len(host.shape)} axes instead of 2")
    except ValueError as error:
        kind_name = type(host).__name__
        raise ShapeError(
            f"plan_product got {name}, an invalid {kind_name} ({error}): pass a valid two-dimensional sparse "
            "matrix"
        ) from error
    if host.format not in STRUCTURES:
        return replace(Factor.of_pattern(Pattern.from_scipy(host), kind), format=host.format, structure=())
    numbered = host.copy()
    numbered.data = np.arange(1, host.data.size + 1).reshape(host.data.shape)
    csr = scipy.sparse.csr_array(numbered)
    csr.sum_duplicates()
    if csr.nnz != host.data.size:
        raise ShapeError(
            f"plan_product got {name} with {host.data.size} values for {csr.nnz} entries, because some "
            "entries are stored twice: call its method sum_duplicates() first"
        )
    pattern, order = Pattern(csr.shape, csr.indptr, csr.indices), csr.data - 1
    in_order = bool((order[1:] > order[:-1]).all())
    structure = tuple(array.copy() for array in _structure(host))
    return Factor(pattern, kind, host.format, structure, host.data.shape, None if in_order else order)


def data_of(name: str, factor: Factor, values: Any) -> Any:
    """The values that a caller gives of a factor, in the order of the factor's values: an array, or what a
    matrix with its pattern holds.

    Raises PlanMismatchError, naming both patterns, where the matrix has another one.
    """
    if isinstance(values, np.ndarray):
        axes = len(factor.shape)
        if axes > 1 and values.shape[:axes] == factor.shape:
            values = values.reshape(factor.pattern.nnz, *values.shape[axes:])
        return values
    if scipy.sparse.issparse(values) and factor.is_of(values):
        return values.data.reshape(-1)
    matrix = matrix_of(values)
    if matrix is None:
        return values
    if matrix.pattern != factor.pattern:
        raise PlanMismatchError(
            f"{name} has {described(matrix.pattern)}, but the product was planned for "
            f"{described(factor.pattern)}: plan a product for this pattern"
        )
    if factor.order is None:
        return matrix.values
    return matrix.values[device_of(matrix.values).asarray(inverse(factor.order))]


def described(pattern: Pattern) -> str:
    """A pattern in words: by its digest and sizes."""
    return f"pattern {pattern.digest[:12]} of shape {pattern.shape} with {pattern.nnz} entries"


def common_device(names: list[str], data: list[Any]) -> Device:
    """The device that holds all values. Raises DeviceError where they are on several."""
    first, *others = (device_of(values) for values in data)
    for name, other in zip(names[1:], others, strict=True):
        if other is not first:
            raise DeviceError(
                f"the values of {names[0]} are on {first.name}, but those of {name} are on {other.name}: "
                "move one of them, or plan the product with device='cuda' or 'host'"
            )
    return first


def arrays_of(
    device: Device, names: list[str], patterns: tuple[Pattern, ...], data: list[Any]
) -> tuple[list[Array], int | None]:
    """The values of all factors as arrays of one dtype on a device, and their number of samples, None where
    there is one set of values alone.

    Raises ShapeError for a shape that does not fit, and for what are no real numbers.
    """
    arrays = [device.asarray(values) for values in data]
    dtype = arrays[0].dtype
    if dtype not in REALS or any(array.dtype != dtype for array in arrays):
        dtypes = (np.float64 if array.dtype.kind in "biu" else array.dtype for array in arrays)
        dtype = np.result_type(np.float32, *dtypes)
    if dtype not in REALS:
        shown = ", ".join(str(array.dtype) for array in arrays)
        raise ShapeError(
            f"a product got values of {shown}: pass real values of at most 64 bits, such as float64"
        )
    batch = None
    for name, pattern, array in zip(names, patterns, arrays, strict=True):
        shape, nnz = array.shape, pattern.nnz
        if len(shape) == 2 and batch is None:
            batch = int(shape[1])
        if shape not in ((nnz,), (nnz, batch)):
            samples = "B" if batch is None else batch
            raise ShapeError(
                f"{name} of shape {pattern.shape} got values of shape {shape}: pass ({nnz},) or ({nnz}, "
                f"{samples})"
            )
    return [a if a.dtype == dtype else device.asarray(a, dtype=dtype) for a in arrays], batch
