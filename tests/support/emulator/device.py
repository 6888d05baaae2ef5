"""The emulated device: NumPy arrays, kernels by their very .cu texts on the emulator."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bppsa_cupy.devices.host import HostDevice
from bppsa_cupy.raw_kernels.architectures import ARCHITECTURES, Architecture
from bppsa_cupy.raw_kernels.kernel import Kernel, LaunchShape, Parameter, Variant
from emulator.buffers import Buffer, bits, poison, require
from emulator.build import EmulationError, compile_text
from emulator.library import ASCENDING, DESCENDING, Library
from emulator.symbols import Memory

#: The architecture whose blocks have the least shared memory of those there are kernels for.
LEAST = "sm_75"

#: ctypes of the scalar parameters, by NumPy dtype.
C_TYPES = {
    "int64": ctypes.c_longlong,
    "int32": ctypes.c_int,
    "float64": ctypes.c_double,
    "float32": ctypes.c_float,
}


class EmulatedDevice(HostDevice):
    """Runs every launch in two orders of blocks and threads, ascending and descending.

    A launch raises EmulationError where a GPU could go wrong: an array shorter than its parameter's
    size, a write outside an array or into an input, an output element that is not written or is
    read, overlapping outputs, results that depend on the order, a barrier not all threads reach; and where a
    GPU of the architecture refuses it. A block may take all the shared memory that one has there.

    architecture  as "sm_75"
    """

    name = "emulated"
    units_innermost = True
    #: The orders, by `Library.run_grid`; whether races are looked for.
    orders: tuple[int, ...] = (ASCENDING, DESCENDING)
    finds_races = False

    def __init__(self, architecture: str = LEAST) -> None:
        super().__init__()
        self.architecture = ARCHITECTURES[architecture]

    @property
    def shared_bytes(self) -> int:
        return self.architecture.shared_bytes

    def _prepare(self, kernel: Kernel, variant: Variant, shape: LaunchShape) -> Callable[..., None]:
        library = load(kernel, variant, self.architecture, self.finds_races)
        library.check_shape(shape)

        def call(*arguments: Any) -> None:
            sizes = declared_sizes(kernel, arguments)
            _require_disjoint(kernel, arguments, sizes)
            first = _run(kernel, library, shape, arguments, sizes, self.orders[0], 0)
            for turn, order in enumerate(self.orders[1:], 1):
                others = _run(kernel, library, shape, arguments, sizes, order, turn % 2)
                for parameter, ascending, other in zip(kernel.parameters, first, others, strict=True):
                    if ascending is not None and other is not None:
                        complete = not is_guarded(kernel, arguments)
                        _require_written_once(kernel, parameter, ascending, other, order, complete)
            for argument, values in zip(arguments, first, strict=True):
                if values is not None:
                    argument.reshape(-1)[: values.size] = values

        return call


class RaceDevice(EmulatedDevice):
    """An emulated device that finds races, and takes random orders of blocks and threads too.

    A launch raises EmulationError also where two threads touch one word of shared memory, or of an array
    that the kernel writes, one of them writes it, and no barrier orders them.

    seeds  of random orders, beside the two fixed ones
    """

    finds_races = True

    def __init__(self, seeds: Sequence[int] = (2, 3), architecture: str = LEAST) -> None:
        super().__init__(architecture)
        self.orders = (ASCENDING, DESCENDING, *seeds)


@functools.cache
def load(kernel: Kernel, variant: Variant, architecture: Architecture, races: bool = False) -> Library:
    """The compiled text of one variant, whose launches are held to an architecture."""
    text = compile_text(kernel.source(variant), kernel.name, kernel.parameters, races=races)
    library = Library(kernel.name, text, architecture)
    library.opted_in = architecture.shared_bytes
    return library


def declared_sizes(kernel: Kernel, arguments: Sequence[Any]) -> list[int]:
    """The number of elements of each array by its parameter's expression; -1 for scalars."""
    scalars = {p.name: int(v) if p.type == "size" else v.item()
               for p, v in zip(kernel.parameters, arguments, strict=True) if not p.is_array}  # fmt: skip
    sizes = []
    for parameter, value in zip(kernel.parameters, arguments, strict=True):
        if not parameter.is_array:
            sizes.append(-1)
            continue
        size = int(eval(parameter.size, {"__builtins__": {}, "min": min, "max": max}, scalars))
        require(
            value.size >= size >= 0,
            f"{kernel.name}: {parameter.name} has {value.size} elements, the kernel takes "
            f"{parameter.size} = {size}",
        )
        sizes.append(size)
    return sizes


def is_guarded(kernel: Kernel, arguments: Sequence[Any]) -> bool:
    """Whether the launch may leave its outputs as they are, by a flag on the device."""
    return any(
        bool(value)
        for parameter, value in zip(kernel.parameters, arguments, strict=True)
        if parameter.name == "guarded"
    )


def _require_disjoint(kernel: Kernel, arguments: Sequence[Any], sizes: list[int]) -> None:
    """Pointers are __restrict__: what is written must be reached through one parameter alone."""
    arrays = [
        (parameter, value.reshape(-1)[:size])
        for parameter, value, size in zip(kernel.parameters, arguments, sizes, strict=True)
        if size > 0
    ]
    for position, (parameter, array) in enumerate(arrays):
        for other, second in arrays[:position]:
            require(
                (parameter.role == "in" and other.role == "in") or not np.may_share_memory(array, second),
                f"{kernel.name}: {other.name} and {parameter.name} overlap, and one of them is written",
            )


def _run(
    kernel: Kernel,
    library: Library,
    shape: LaunchShape,
    arguments: Sequence[Any],
    sizes: list[int],
    order: int,
    poisoned: int,
) -> list[np.ndarray | None]:
    """One launch on copies, with the poison of this number in outputs; the new values of the arrays that are
    written, None for the others."""
    buffers: list[Buffer | None] = []
    watched: list[Memory] = []
    values: list[Any] = []
    results: list[np.ndarray | None] = []
    guarded = is_guarded(kernel, arguments)
    try:
        for parameter, argument, size in zip(kernel.parameters, arguments, sizes, strict=True):
            if not parameter.is_array:
                buffers.append(None)
                values.append(C_TYPES[argument.dtype.name](argument.item()))
                continue
            buffer = Buffer(size, argument.dtype)
            buffers.append(buffer)
            values.append(ctypes.c_void_p(buffer.address))
            if parameter.role == "out" and not guarded:
                buffer.array[...] = poison(argument.dtype, poisoned)
            else:
                buffer.array[...] = argument.reshape(-1)[:size]
            if parameter.role != "in" or library.counts_sectors:
                item = argument.dtype.itemsize
                watched.append(Memory(parameter.name, buffer.address, size * item, item))
        library.run_grid(values, shape, order, watched)
        for parameter, argument, buffer in zip(kernel.parameters, arguments, buffers, strict=True):
            if buffer is None:
                results.append(None)
                continue
            where = f"{kernel.name}: {parameter.name}"
            require(buffer.guards_hold(), f"{where} was written outside its {buffer.array.size} elements")
            if parameter.role == "in":
                same = np.array_equal(bits(buffer.array), bits(argument.reshape(-1)[: buffer.array.size]))
                require(same, f"{where} is an input and was written")
                results.append(None)
            else:
                results.append(buffer.array.copy())
        return results
    finally:
        for buffer in buffers:
            if buffer is not None:
                buffer.close()


def _require_written_once(
    kernel: Kernel, parameter: Parameter, first: np.ndarray, other: np.ndarray, order: int, complete: bool
) -> None:
    """Of the ascending order's values and those of another `order`; if `complete`, all of an output."""
    where = f"{kernel.name}: {parameter.name}"
    if complete and parameter.role == "out" and order == DESCENDING:
        left = (bits(first) == bits(poison(first.dtype, 0))) & (bits(other) == bits(poison(other.dtype, 1)))
        if left.any():
            raise EmulationError(
                f"{where}[{left.argmax()}] was not written, {left.sum()} of {left.size} elements were not"
            )
    differ = bits(first) != bits(other)
    if differ.any():
        element = int(differ.argmax())
        named = "descending order" if order == DESCENDING else f"the random order of seed {order}"
        raise EmulationError(
            f"{where}[{element}] is {first[element]} with threads in ascending order and {other[element]} "
            f"in {named}: a race, or an output that is read ({differ.sum()} elements differ)"
        )
