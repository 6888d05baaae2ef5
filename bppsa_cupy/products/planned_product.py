"""A product of sparse matrices whose patterns stay the same, for values that change."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from bppsa_cupy.arguments import as_integer, as_output
from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device, Launch, device_of, get_device
from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.plan.product import Product, multiply_masked
from bppsa_cupy.products.blocks import transpose
from bppsa_cupy.products.factors import Factor, arrays_of, common_device, data_of, factor_of
from bppsa_cupy.products.file import read_product_file, write_product_file
from bppsa_cupy.products.multiplications import (
    Multiplication,
    plan_gram_multiplications,
    plan_multiplications,
)
from bppsa_cupy.products.steps import make_steps, result_pattern
from bppsa_cupy.scan.launches import IndexMaps

#: Batch sizes, dtypes and streams whose launches, and memory for values between the factors and the result,
#: are kept.
MAXIMAL_PROGRAMS = 4

FORMATS = "csr", "csc", "bsr"
TRIANGLES = "both", "upper", "lower"


@dataclass(frozen=True)
class Program:
    """The launches of a planned product for arrays of one device, dtype and batch.

    Attributes
    ----------
    launches : tuple of tuple
        For each step, the call with operands and result, and the numbers of the operands. Factors have the
        numbers 0, 1, …; results have the next ones.
    intermediates : tuple of array
        The results of all steps but the last.
    """

    launches: tuple[tuple[Callable[..., None], tuple[int, ...]], ...]
    intermediates: tuple[Array, ...]

    def compute(self, arrays: Sequence[Array], out: Array) -> None:
        """Compute the product of the factors' values into `out`."""
        operands = [*arrays, *self.intermediates, out]
        for number, (launch, taken) in enumerate(self.launches, len(arrays)):
            launch(*(operands[k] for k in taken), operands[number])


class PlannedProduct:
    """The product of two or more sparse matrices, planned once for their patterns.

    Created by `plan_product`, `plan_gram` or `PlannedProduct.load`. Call it with the values of the factors.

    Attributes
    ----------
    factors : tuple of Pattern
        The patterns of the factors, in order.
    pattern : Pattern
        The pattern of the product: that of the mask, or all entries that the patterns of the factors can make
        nonzero.
    out_format : {"csr", "csc", "bsr"}
        The order of the values of the product.
    multiplications : tuple
        The products of two matrices each, in the order of their computation.
    multiply_adds : int
        Number of multiply-adds per sample.

    Examples
    --------
    >>> import scipy.sparse, bppsa_cupy as bp
    >>> a = scipy.sparse.csr_array([[1.0, 2.0], [0.0, 3.0]])
    >>> product = bp.plan_product(a, a)
    >>> values = product(a.data, 10 * a.data)
    >>> product.to_scipy(values).toarray().tolist()
    [[10.0, 80.0], [0.0, 90.0]]
    """

    def __init__(
        self,
        factors: Sequence[Factor],
        multiplications: Sequence[Multiplication],
        out_format: str = "csr",
        pattern: Pattern | None = None,
        device: str | Device | None = None,
    ) -> None:
        self._given, self.multiplications = tuple(factors), tuple(multiplications)
        self.factors = tuple(factor.pattern for factor in factors)
        self.out_format = out_format
        self.pattern = result_pattern(self.multiplications[-1]) if pattern is None else pattern
        self._steps = make_steps(self._given, self.multiplications, self.pattern, out_format)
        self._names = [f"factor {number}" for number in range(1, len(self.factors) + 1)]
        self._device = None if device is None else get_device(device)
        self._maps: dict[Device, IndexMaps] = {}
        self._programs: dict[Hashable, Program] = {}

    @property
    def multiply_adds(self) -> int:
        """The number of multiply-adds per sample."""
        return sum(multiplication.multiply_adds for multiplication in self.multiplications)

    def __call__(self, *values: Any, out: Array | None = None) -> Array:
        """Compute the values of the product.

        Parameters
        ----------
        *values : array, matrix, JacobianRecord or (Pattern, values)
            One argument per factor. Arrays are (nnz,) to share values across the batch, or (nnz, B), in the
            order of the `data` of the planned matrix, or of its pattern. NumPy, CuPy and DLPack arrays are
            accepted. Matrices of SciPy or cupyx must have the planned pattern, which is compared; the planned
            format is the fastest.
        out : array, optional
            The array to write the product to: C-contiguous, and without overlap with any values.

        Returns
        -------
        array, (nnz,) or (nnz, B)
            The values in the order of the data of `to_scipy(values)`, on the device of the values or of the
            plan. Integers and booleans count as float64; the dtype is float32 or float64 by the promotion of
            NumPy. On CUDA the call does not wait.

        Raises
        ------
        ShapeError
            If values or `out` have the wrong shape or dtype.
        ArgumentError
            If the number of values is not the number of factors.
        PlanMismatchError
            If a matrix has another pattern.
        DeviceError
            If arrays are on several devices, or this process cannot run kernels.

        Notes
        -----
        Each call with equal values gives bit-identical results. Entries that cancel to 0 are stored zeros.
        """
        device, arrays, batch, shape = self._taken(values)
        if out is None:
            out = device.empty(shape, arrays[0].dtype)
        else:
            out = as_output("a product", "out", out, device.xp, shape, arrays[0].dtype, arrays)
        # Calls at the same time, from two threads, take a program each; the last one's is kept.
        key = (device.queue, out.dtype, batch, *(array.ndim for array in arrays))
        program = self._programs.pop(key, None)
        if program is None:
            results = self._intermediates(device, arrays, batch)
            launches = self._launches(device, [*arrays, *results, out], batch, True)
            steps = zip(launches, self._steps, strict=False)
            program = Program(tuple((launch, step.operands) for launch, step in steps), tuple(results))
        program.compute(arrays, out)
        for oldest in list(self._programs)[: 1 - MAXIMAL_PROGRAMS]:
            self._programs.pop(oldest, None)
        self._programs[key] = program
        return out

    def bind(self, *values: Array, out: Array) -> Launch:
        """Return a function without arguments that reads `values` and writes the product to `out`.

        Use it in a loop that changes the values in place. The returned function checks nothing, which saves
        most of the time of a small product. On CUDA it runs as a CUDA graph from the second call on.

        Parameters
        ----------
        *values, out : array, (nnz,) or (nnz, B)
            The values of each factor and of the product: C-contiguous arrays of the dtype of the result, on
            the device of the product, because nothing is copied. The returned function keeps them alive.

        Returns
        -------
        callable

        Raises
        ------
        ShapeError
            If an array has the wrong shape or dtype, or would have to be copied.
        """
        device, arrays, batch, shape = self._taken(values)
        for name, array, value in zip(self._names, arrays, values, strict=True):
            if not isinstance(value, type(array)) or device.address(array) != device.address(value):
                raise ShapeError(
                    f"bind cannot use {name} without a copy: pass a C-contiguous array of {array.dtype} on "
                    f"{device.name}"
                )
        out = as_output("a product", "out", out, device.xp, shape, arrays[0].dtype, arrays)
        operands = [*arrays, *self._intermediates(device, arrays, batch), out]
        return device.sequence(self._launches(device, operands, batch, False))

    def _taken(self, values: Sequence[Any]) -> tuple[Device, list[Array], int | None, tuple[int, ...]]:
        """What a call is given: the device, the factors' values on it, the batch, and the product's shape."""
        if len(values) != len(self.factors):
            raise ArgumentError(
                f"a product of {len(self.factors)} factors got {len(values)} arrays of values: pass one per "
                "factor"
            )
        operands = zip(self._names, self._given, values, strict=True)
        data = [data_of(name, factor, value) for name, factor, value in operands]
        device = self._device or common_device(self._names, data)
        device.check_process()
        arrays, batch = arrays_of(device, self._names, self.factors, data)
        nnz = self.pattern.nnz
        return device, arrays, batch, (nnz,) if batch is None else (nnz, batch)

    def index_maps(self, device: Device) -> IndexMaps:
        """The copies of the plan's maps on a device."""
        return self._maps.setdefault(device, IndexMaps(device))

    def _launches(
        self, device: Device, operands: list[Array], batch: int | None, names: bool
    ) -> list[Callable[..., None]]:
        """The calls of all steps, in order; none for no samples. `names` as in `Step.bind`."""
        if batch == 0:
            return []
        maps, results = self.index_maps(device), operands[len(self.factors) :]
        return [
            step.bind(device, maps, [operands[k] for k in step.operands], result, batch or 1, names)
            for step, result in zip(self._steps, results, strict=True)
        ]

    def _intermediates(self, device: Device, arrays: list[Array], batch: int | None) -> list[Array]:
        """Arrays for the results of all steps but the last one."""
        batched = [array.ndim == 2 for array in arrays]
        results = []
        for step in self._steps[:-1]:
            batched.append(any(batched[k] for k in step.operands))
            shape = (step.nnz,) if batch is None or not batched[-1] else (step.nnz, batch)
            results.append(device.empty(shape, arrays[0].dtype))
        return results

    def to_scipy(self, values: Array, sample: int = 0) -> Any:
        """Return the product of one sample as a SciPy matrix in `out_format`, with sorted indices.

        Parameters
        ----------
        values : array, (nnz,) or (nnz, B)
            The values that a call returned.
        sample : int, default: 0
            The index of the sample, from 0 to B - 1.

        Returns
        -------
        SciPy sparse matrix or array
            A matrix such as `csr_matrix` if the first factor was one, else an array such as `csr_array`.

        Raises
        ------
        ShapeError
            If the values have the wrong shape.
        """
        nnz = self.pattern.nnz
        if getattr(values, "ndim", 0) not in (1, 2) or values.shape[0] != nnz:
            shape = getattr(values, "shape", type(values).__name__)
            raise ShapeError(f"to_scipy got values of {shape}: pass ({nnz},) or ({nnz}, B)")
        samples = int(values.shape[1]) if values.ndim == 2 else 1
        sample = as_integer("to_scipy", "sample", sample, 0, samples - 1)
        column = values[:, sample] if values.ndim == 2 else values
        data, pattern = np.array(device_of(column).to_host(column)), self.pattern
        old = issubclass(self._given[0].kind or object, scipy.sparse.spmatrix)
        kind = getattr(scipy.sparse, f"{self.out_format}_{'matrix' if old else 'array'}")
        if self.out_format == "csc":
            by_columns = transpose(pattern)[0]
            arrays = data, by_columns.indices.copy(), by_columns.indptr.copy()
        elif self.out_format == "bsr":
            last = self.multiplications[-1]
            (rows, _, columns), blocks = last.block, last.many.pattern
            arrays = data.reshape(-1, rows, columns), blocks.indices.copy(), blocks.indptr.copy()
        else:
            arrays = data, pattern.indices.copy(), pattern.indptr.copy()
        return kind(arrays, shape=pattern.shape)

    def __getstate__(self) -> dict[str, Any]:
        """What pickles and copies hold: the plan, and its device by name; no arrays of calls."""
        name = None if self._device is None else self._device.name
        return {**self.__dict__, "_device": name, "_maps": {}, "_programs": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        device = state["_device"]
        self.__dict__.update(state, _device=None if device is None else get_device(device))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan, with the order of the values of each factor, to an HDF5 file at `path`.

        An existing file is kept if writing fails. Raises PlanError if the file cannot be written.
        """
        write_product_file(path, self._given, self.multiplications, self.out_format, self.pattern)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str | Device | None = None) -> PlannedProduct:
        """Read and check a product that `save` wrote to `path`.

        `device` is "host", "cuda" or "auto". By default each call uses the device of its values. Raises
        PlanError if the file is missing, damaged or not a product, DeviceError if the device is missing.
        """
        return cls(*read_product_file(path), device)

    def __repr__(self) -> str:
        shapes = " · ".join(str(factor.shape) for factor in self.factors)
        return f"<product {shapes}: {self.pattern.nnz} entries, {self.multiply_adds} multiply-adds>"


def plan_product(
    *factors: Any,
    mask: Any = None,
    out_format: str | None = None,
    device: str | Device | None = None,
) -> PlannedProduct:
    """Plan the product of sparse matrices whose patterns stay the same while their values change.

    Parameters
    ----------
    *factors
        Two or more factors, such as A and B, or R, A and P: SciPy or cupyx sparse matrices in any format,
        `Pattern`s or `JacobianRecord`s. Only patterns are used, not values. Stored zeros are entries of the
        pattern. The plan stores the order of a factor's values, so CSC, COO, unsorted CSR and `A.T` need no
        conversion per call. For DIA, LIL, DOK, `Pattern` and `JacobianRecord` factors, pass values in
        CSR order: by row, then by column.
    mask
        A sparse matrix or `Pattern` with the shape of the product. Only the entries of the mask are computed.
        An entry outside the pattern of the product is 0. By default all entries are computed.
    out_format : "csr", "csc" or "bsr", optional
        The order of the result's values, and the format of `to_scipy`. The default is the format of the first
        factor if it is one of these, else "csr". "bsr" needs factors whose block sizes fit each other.
    device : "host", "cuda" or "auto", optional
        The device that computes. By default each call uses the device of its values.

    Returns
    -------
    PlannedProduct

    Raises
    ------
    ShapeError
        If sizes do not fit, or a matrix has duplicate entries.
    ArgumentError
        If there are fewer than two factors, `out_format` is unknown, or out_format="bsr" is used with
        factors whose block sizes do not fit.
    DeviceError
        If the device is not available, or has too little memory.

    Notes
    -----
    The time for planning grows with the number of entries and multiply-adds. Three or more factors are
    multiplied in an order with about the fewest multiply-adds. Factors that consist of dense blocks, in BSR
    or any other format, are multiplied block by block.

    Examples
    --------
    >>> import scipy.sparse, bppsa_cupy as bp
    >>> a = scipy.sparse.csr_array([[1.0, 2.0], [0.0, 3.0]])
    >>> product = bp.plan_product(a, a.T)
    >>> product(a.data, a.T.data)
    array([5., 6., 6., 9.])
    """
    if len(factors) < 2:
        raise ArgumentError(f"plan_product got {len(factors)} factors: pass two or more")
    operands = [factor_of(f"factor {number}", factor) for number, factor in enumerate(factors, 1)]
    wanted = None if mask is None else factor_of("mask", mask).pattern
    name = _format_of(operands[0], out_format)
    multiplications = plan_multiplications(operands, wanted, name == "csc")
    if name == "bsr" and not multiplications[-1].is_blocked:
        name = _format_without_blocks(out_format)
    return PlannedProduct(operands, multiplications, name, wanted, device)


def _format_without_blocks(out_format: str | None) -> str:
    if out_format == "bsr":
        raise ArgumentError(
            "out_format='bsr' needs factors whose blocks fit, and triangle='both' for plan_gram: pass 'csr'"
        )
    return "csr"


def _format_of(first: Factor, out_format: str | None) -> str:
    """The format of a result that was asked for; by default the first factor's."""
    if out_format is None:
        return first.format if first.format in FORMATS else "csr"
    if out_format not in FORMATS:
        raise ArgumentError(f"out_format={out_format!r} is unknown: pass {', '.join(map(repr, FORMATS))}")
    return out_format


def plan_gram(
    a: Any,
    weights: Any = False,
    *,
    triangle: str = "both",
    out_format: str | None = None,
    device: str | Device | None = None,
) -> PlannedProduct:
    """Plan AᵀA, or AᵀDA, for a sparse matrix whose pattern stays the same while its values change.

    Parameters
    ----------
    a
        The matrix A, in any form that `plan_product` accepts. Calls do not form Aᵀ.
    weights : bool or matrix, default: False
        True plans AᵀDA with a diagonal D. For another D, for example block diagonal, pass a square sparse
        matrix or `Pattern` with the pattern of D. A call then gets the values of D as its second argument.
    triangle : {"both", "upper", "lower"}, default: "both"
        The part of the result to compute. A triangle includes the diagonal.
    out_format, device
        "csr", "csc" or "bsr", and "host", "cuda" or "auto": see `plan_product`. If A is in BSR and only one
        triangle is computed, the default format is "csr".

    Returns
    -------
    PlannedProduct

    Raises
    ------
    ShapeError, ArgumentError, DeviceError
        If a matrix does not fit, an option is invalid, or the device is missing or has too little memory.

    Examples
    --------
    The matrix of the weighted normal equations:

    >>> import numpy as np, scipy.sparse, bppsa_cupy as bp
    >>> a = scipy.sparse.csr_array([[1.0, 2.0], [0.0, 3.0]])
    >>> gram = bp.plan_gram(a, weights=True)
    >>> gram(a.data, np.array([1.0, 10.0]))
    array([ 1.,  2.,  2., 94.])
    """
    operands = [factor_of("A", a)]
    if weights is not False:
        rows = operands[0].pattern.shape[0]
        operands.append(factor_of("weights", Pattern.diagonal(rows) if weights is True else weights))
    if triangle not in TRIANGLES:
        raise ArgumentError(f"triangle={triangle!r} is unknown: pass {', '.join(map(repr, TRIANGLES))}")
    name = _format_of(operands[0], out_format)
    multiplications, pattern = plan_gram_multiplications(operands, triangle)
    if name == "bsr" and (pattern is not None or not multiplications[-1].is_blocked):
        name = _format_without_blocks(out_format)
    return PlannedProduct(operands, multiplications, name, pattern, device)


def factors_of(product: PlannedProduct) -> list[Factor]:
    """A, B and C of C = A·B, with the orders of their values."""
    c = product.to_scipy(np.arange(float(product.pattern.nnz)))
    return [*product._given, factor_of("the product", c)]


def plan_gradients(a: Factor, b: Factor, c: Factor) -> tuple[PlannedProduct, PlannedProduct]:
    """For C = A·B, return the products that compute the gradients with respect to A and to B.

    The first multiplies the values of B and of the gradient G, the second those of A and G.

    G has the pattern and the order of C. The list of the terms of C is grouped by the entries of A and of B.
    """
    pointer, *lists = multiply_masked(a.pattern, b.pattern, c.pattern).maps.values()
    entries = np.repeat(np.arange(c.pattern.nnz, dtype=pointer.dtype), np.diff(pointer))
    positions = [
        places if factor.order is None else factor.order.astype(pointer.dtype)[places]
        for factor, places in zip((a, b, c), (*lists, entries), strict=True)
    ]
    vectors = [Pattern.dense(1, factor.pattern.nnz) for factor in (a, b, c)]

    def grouped(by: int, first: int) -> PlannedProduct:
        terms = entries.size
        ones = np.ones(terms, np.int8), positions[by], np.arange(terms + 1, dtype=pointer.dtype)
        groups = scipy.sparse.csr_array(ones, shape=(terms, vectors[by].nnz)).tocsc()
        maps = {
            "term_ptr": groups.indptr.astype(pointer.dtype),
            "a_position": positions[first][groups.indices],
            "b_position": positions[2][groups.indices],
        }
        made = Product(vectors[first], vectors[2], vectors[by], "masked", terms, maps)
        factors = Factor.of_pattern(vectors[first]), Factor.of_pattern(vectors[2])
        return PlannedProduct(factors, [Multiplication(0, 1, made, made)])

    return grouped(0, 1), grouped(1, 0)
