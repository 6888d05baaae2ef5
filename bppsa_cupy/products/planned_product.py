"""A product of sparse matrices whose patterns stay the same, for values that change."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import scipy.sparse

from bppsa_cupy.arguments import as_integer, as_output
from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device, Launch, device_of, get_device
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.products.factors import Factor, arrays_of, common_device, data_of, factor_of
from bppsa_cupy.products.file import read_multiplications, write_multiplications
from bppsa_cupy.products.multiplications import Multiplication, plan_multiplications
from bppsa_cupy.scan.launches import Matrix, bind_open_product, bind_product
from bppsa_cupy.scan.maps import IndexMaps

#: Batch sizes, dtypes and streams whose launches, and memory for values between the factors and the result,
#: are kept.
MAXIMAL_PROGRAMS = 4

L = TypeVar("L")


@dataclass(frozen=True)
class Program:
    """The launches of a planned product for arrays of one device, dtype and batch.

    launches  of each multiplication the call that takes A, B and C, and the numbers of A and B: the factors
              have 0, 1, …, results those after
    room      the results of all but the last
    """

    launches: tuple[tuple[Callable[[Array, Array, Array], None], tuple[int, int]], ...]
    room: tuple[Array, ...]

    def run(self, arrays: Sequence[Array], out: Array) -> None:
        """Compute the product of the factors' values into `out`."""
        operands = [*arrays, *self.room, out]
        for number, (launch, (left, right)) in enumerate(self.launches, len(arrays)):
            launch(operands[left], operands[right], operands[number])


class PlannedProduct:
    """The product of two or more sparse matrices, planned once for their patterns.

    factors          the patterns of the factors, in order
    pattern          of the product: every entry that has a term, whatever its value
    multiplications  the products of two that are computed, in order; the last one gives the product
    multiply_adds    of one sample

    `product(a, b)` computes values. Made by `plan_product`, or by `PlannedProduct.load`.
    """

    def __init__(
        self,
        factors: Sequence[Factor],
        multiplications: Sequence[Multiplication],
        device: str | Device | None = None,
    ) -> None:
        self._given, self.multiplications = tuple(factors), tuple(multiplications)
        self.factors = tuple(factor.pattern for factor in factors)
        self._names = [f"factor {number}" for number in range(1, len(self.factors) + 1)]
        self._device = None if device is None else get_device(device)
        self._maps: dict[Device, IndexMaps] = {}
        self._programs: dict[Hashable, Program] = {}

    @property
    def pattern(self) -> Pattern:
        """The pattern of the product."""
        return self.multiplications[-1].many.pattern

    @property
    def multiply_adds(self) -> int:
        """Multiplications of two numbers, of one sample."""
        return sum(multiplication.many.multiply_adds for multiplication in self.multiplications)

    def __call__(self, *values: Any, out: Array | None = None) -> Array:
        """The product's values for these of the factors, in the order of `pattern`: by rows, columns rising.

        values  of each factor (nnz,), one set for every sample, or (nnz, B): in the order of the `data` of
                the matrix that was planned, else of the pattern. From NumPy, CuPy or anything with DLPack,
                copied where not C-contiguous or where that order is not the pattern's. Or a matrix of SciPy
                or cupyx of any format, a JacobianRecord or a (Pattern, values) pair, whose pattern is
                compared with the planned one: one of SciPy in the format and order that was planned by the
                bytes of its indices, others by their digest once they are sorted
        out     where the product goes, C-contiguous and apart from all values; a new array without it, which
                costs the time to take its memory

        Returns `out`: (nnz of `pattern`,) where every factor has one set of values, else (nnz, B), on the
        device that holds the values, or the one that was asked for. Integers and booleans count as float64;
        the dtype is float32 or float64 by NumPy's promotion. On CUDA the call does not wait.

        Law: for each sample the product of the factors' matrices, in the same bits at every call; entries
        that cancel are stored zeros. Raises ShapeError where values or `out` do not fit, PlanMismatchError
        where a matrix has another pattern, DeviceError where arrays are on several devices, or where this
        process cannot run kernels.
        """
        device, arrays, batch, shape = self._taken(values)
        if out is None:
            out = device.empty(shape, arrays[0].dtype)
        else:
            out = as_output("a product", "out", out, device.xp, shape, arrays[0].dtype, arrays)
        # Calls at the same time, from two threads, take a program each; the last one's is kept.
        key = (device.queue, out.dtype, batch, *(array.ndim for array in arrays))
        program = self._programs.pop(key, None) or self._program(device, arrays, batch, out)
        program.run(arrays, out)
        for oldest in list(self._programs)[: 1 - MAXIMAL_PROGRAMS]:
            self._programs.pop(oldest, None)
        self._programs[key] = program
        return out

    def bind(self, *values: Array, out: Array) -> Launch:
        """A call without arguments that computes the product of what these arrays hold by then, into `out`.

        For loops that write new values in place: it checks nothing, and of a small product the checks are
        most of the time. On CUDA it is a graph from the second call on. The arrays are kept alive.

        values, out  as a call takes them, but arrays of the product's device and dtype, C-contiguous: nothing
                     is copied. Raises ShapeError for others, and what a call raises.
        """
        device, arrays, batch, shape = self._taken(values)
        for name, array, given in zip(self._names, arrays, values, strict=True):
            if not isinstance(given, type(array)) or device.address(array) != device.address(given):
                raise ShapeError(
                    f"{name} would be copied, and its later values not be seen: bind takes {array.dtype} "
                    f"arrays on {device.name}, C-contiguous, in the order of the pattern"
                )
        out = as_output("a product", "out", out, device.xp, shape, arrays[0].dtype, arrays)
        room = self._take_room(device, arrays, batch)
        return device.sequence(self._launches(bind_product, device, arrays, batch, [*room, out]))

    def _taken(self, values: Sequence[Any]) -> tuple[Device, list[Array], int | None, tuple[int, ...]]:
        """What a call is given: the device, the factors' values on it, the batch, and the product's shape."""
        if len(values) != len(self.factors):
            raise ShapeError(f"a product of {len(self.factors)} factors got values of {len(values)}")
        given = zip(self._names, self._given, values, strict=True)
        data, orders = zip(*(data_of(name, factor, value) for name, factor, value in given), strict=True)
        device = self._device or common_device(self._names, list(data))
        device.check_process()
        arrays, batch = arrays_of(device, self._names, self.factors, list(data))
        for number, order in enumerate(orders):
            if order is not None:
                arrays[number] = arrays[number][device.asarray(order)]
        nnz = self.pattern.nnz
        return device, arrays, batch, (nnz,) if batch is None else (nnz, batch)

    def _program(self, device: Device, arrays: list[Array], batch: int | None, out: Array) -> Program:
        """The program for arrays like these."""
        room = self._take_room(device, arrays, batch)
        launches = self._launches(bind_open_product, device, arrays, batch, [*room, out])
        operands = [(multiplication.left, multiplication.right) for multiplication in self.multiplications]
        return Program(tuple(zip(launches, operands, strict=False)), tuple(room))

    def _launches(
        self,
        bind: Callable[..., L],
        device: Device,
        arrays: list[Array],
        batch: int | None,
        results: list[Array],
    ) -> list[L]:
        """The launches of all multiplications, in order, into their results; none for no samples."""
        if batch == 0:
            return []
        if device not in self._maps:
            self._maps[device] = IndexMaps(device)
        maps, launches = self._maps[device], list[L]()
        operands = [Matrix(*both) for both in zip(self.factors, arrays, strict=True)]
        for multiplication, result in zip(self.multiplications, results, strict=True):
            a, b = operands[multiplication.left], operands[multiplication.right]
            several = batch not in (None, 1) and (a.batched or b.batched)
            product = multiplication.many if several else multiplication.one
            launches.append(bind(device, maps, product, a, b, result, batch or 1))
            operands.append(Matrix(product.pattern, result))
        return launches

    def _take_room(self, device: Device, arrays: list[Array], batch: int | None) -> list[Array]:
        """Arrays for the results of all multiplications but the last one."""
        batched = [array.ndim == 2 for array in arrays]
        room = []
        for multiplication in self.multiplications[:-1]:
            batched.append(batched[multiplication.left] or batched[multiplication.right])
            nnz = multiplication.many.pattern.nnz
            shape = (nnz,) if batch is None or not batched[-1] else (nnz, batch)
            room.append(device.empty(shape, arrays[0].dtype))
        return room

    def to_scipy(self, values: Array, sample: int = 0) -> Any:
        """The product's matrix for one sample, a copy with sorted indices: of SciPy's class and format of the
        first factor, csr_array where that was no matrix of SciPy's.

        values  as a call returns them, (nnz,) or (nnz, B); `sample` is from 0 to B - 1
        Raises ShapeError where they do not fit.
        """
        nnz = self.pattern.nnz
        if getattr(values, "ndim", 0) not in (1, 2) or values.shape[0] != nnz:
            shape = getattr(values, "shape", type(values).__name__)
            raise ShapeError(f"to_scipy got values of {shape}: the product has ({nnz},) or ({nnz}, B)")
        samples = int(values.shape[1]) if values.ndim == 2 else 1
        sample = as_integer("to_scipy", "sample", sample, 0, samples - 1)
        column = values[:, sample] if values.ndim == 2 else values
        matrix = self.pattern.to_scipy(np.array(device_of(column).to_host(column)))
        first = self._given[0]
        if first.kind is None:
            return matrix
        if issubclass(first.kind, scipy.sparse.spmatrix):
            matrix = scipy.sparse.csr_matrix(matrix)
        return matrix.asformat(first.format)

    def __getstate__(self) -> dict[str, Any]:
        """What pickles and copies hold: the plan, and its device by name; no arrays of calls."""
        name = None if self._device is None else self._device.name
        return {**self.__dict__, "_device": name, "_maps": {}, "_programs": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        device = state["_device"]
        self.__dict__.update(state, _device=None if device is None else get_device(device))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan, with the order of each factor's values, to an HDF5 file.

        An earlier file of that name stays if writing fails. Raises PlanError.
        """
        write_multiplications(path, self._given, self.multiplications)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str | Device | None = None) -> PlannedProduct:
        """Read a product that `save` wrote, everything checked.

        device   as in `plan_product`
        Raises PlanError naming what is broken, DeviceError where the device is missing.
        """
        return cls(*read_multiplications(path), device)

    def __repr__(self) -> str:
        shapes = " · ".join(str(factor.shape) for factor in self.factors)
        return f"<product {shapes}: {self.pattern.nnz} entries, {self.multiply_adds} multiply-adds>"


def plan_product(*factors: Any, device: str | Device | None = None) -> PlannedProduct:
    """Plan the product of sparse matrices whose patterns stay the same while their values change.

    factors  two or more, A·B or R·A·P: matrices of SciPy or cupyx in any format, of which stored zeros are
             entries and values are not read; Patterns; JacobianRecords. CSR with sorted rows costs least: the
             values of CSR with unsorted rows, CSC, BSR and COO are permuted at each call, others converted
    device   where values are computed: "host", "cuda", or "auto"; without it, where a call's values are

    What planning takes grows with entries and multiply-adds. Three factors or more are multiplied in the
    order of about the fewest multiply-adds, which is chosen before any product is made.

    Raises ShapeError where sizes do not fit, and where a matrix has duplicates; DeviceError where a device is
    missing, or where a product does not fit the memory.
    """
    if len(factors) < 2:
        raise ShapeError(f"plan_product got {len(factors)} factors: it takes two or more")
    given = [factor_of(f"factor {number}", factor) for number, factor in enumerate(factors, 1)]
    return PlannedProduct(given, plan_multiplications([factor.pattern for factor in given]), device)
