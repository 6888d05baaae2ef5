"""What a caller gives as a factor: its pattern when a product is planned, its values when it is computed."""

from __future__ import annotations

from typing import Any

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device, device_of
from bppsa_cupy.errors import DeviceError, PlanMismatchError, ShapeError
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.scan.operands import matrix_of, on_host

REALS = np.dtype(np.float32), np.dtype(np.float64)


def pattern_of(name: str, given: Any) -> Pattern:
    """The pattern of a factor, which is a Pattern, a JacobianRecord, or a CSR matrix of SciPy or cupyx.

    Stored zeros are entries. Raises ShapeError where it is none of these, and where the order of the matrix's
    own values is not the pattern's: for another format, unsorted rows, or duplicates.
    """
    if isinstance(given, Pattern):
        return given
    if isinstance(given, JacobianRecord):
        return given.pattern
    host = on_host(given)
    if host is None:
        raise ShapeError(
            f"plan_product got {name} of {type(given).__name__}: it takes a Pattern, a JacobianRecord, or a "
            "CSR matrix of SciPy or cupyx"
        )
    if host.format != "csr":
        raise ShapeError(
            f"plan_product got {name} in the format {host.format}, whose values have another order than "
            "those of CSR, which it takes: give its tocsr()"
        )
    try:
        return Pattern(host.shape, host.indptr.copy(), host.indices.copy())
    except ShapeError as error:
        raise ShapeError(
            f"plan_product got {name} whose values are not in the order of a pattern: {error}; its "
            "sum_duplicates() does both, in place"
        ) from error


def data_of(name: str, pattern: Pattern, given: Any) -> Any:
    """The values that a caller gives of a factor: an array, or what a matrix with its pattern holds.

    Raises PlanMismatchError, naming both patterns, where the matrix has another one.
    """
    matrix = None if isinstance(given, np.ndarray) else matrix_of(given)
    if matrix is None:
        return given
    if matrix.pattern != pattern:
        raise PlanMismatchError(
            f"{name} has {described(matrix.pattern)}, the product was planned for {described(pattern)}: plan "
            "one of that factor"
        )
    return matrix.values


def described(pattern: Pattern) -> str:
    """A pattern in words: by its digest and sizes."""
    return f"pattern {pattern.digest[:12]} of shape {pattern.shape} with {pattern.nnz} entries"


def common_device(names: list[str], data: list[Any]) -> Device:
    """The device that holds all values. Raises DeviceError where they are on several."""
    first, *others = (device_of(values) for values in data)
    for name, other in zip(names[1:], others, strict=True):
        if other is not first:
            raise DeviceError(
                f"{names[0]} has its values on {first.name}, {name} on {other.name}: move one, or plan the "
                "product with device='cuda' or 'host'"
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
        dtype = np.result_type(np.float32, *(array.dtype for array in arrays))
    if dtype not in REALS:
        given = ", ".join(str(array.dtype) for array in arrays)
        raise ShapeError(f"a product got values of {given}: it takes real numbers of at most 64 bits")
    batch = None
    for name, pattern, array in zip(names, patterns, arrays, strict=True):
        shape, nnz = array.shape, pattern.nnz
        if len(shape) == 2 and batch is None:
            batch = int(shape[1])
        if shape not in ((nnz,), (nnz, batch)):
            samples = "B" if batch is None else batch
            raise ShapeError(
                f"{name} got values of shape {shape}: its pattern, of shape {pattern.shape}, "
                f"takes ({nnz},) or ({nnz}, {samples})"
            )
    return [a if a.dtype == dtype else device.asarray(a, dtype=dtype) for a in arrays], batch


def checked_output(device: Device, out: Any, shape: tuple[int, ...], arrays: list[Array]) -> Array:
    """`out`, where a product of this shape may be written, and which no factor overlaps. Raises ShapeError,
    and DeviceError where it is on another device."""
    if not isinstance(out, device.xp.ndarray):
        raise DeviceError(
            f"a product got out of {type(out).__name__}: on {device.name} it takes a "
            f"{device.xp.ndarray.__module__.split('.')[0]}.ndarray"
        )
    dtype = arrays[0].dtype
    if out.shape != shape or out.dtype != dtype:
        raise ShapeError(
            f"a product got out of {out.dtype} and shape {out.shape}: these factors give {dtype} of "
            f"shape {shape}"
        )
    if not out.flags.c_contiguous or not getattr(out.flags, "writeable", True):
        raise ShapeError("a product got out that is not C-contiguous or is read-only: give a new array")
    if any(device.xp.may_share_memory(out, array) for array in arrays):
        raise ShapeError("a product got out that overlaps the values of a factor: give an array of its own")
    return out
