"""The emulated device: NumPy arrays, kernels by their very .cu texts on the emulator."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from bppsa_cupy.devices.host import HostDevice
from bppsa_cupy.raw_kernels.kernel import Kernel, LaunchShape, Parameter, Variant
from emulator.buffers import Buffer, bits, poison, require
from emulator.build import EmulationError, compile_text
from emulator.library import Library

#: Shared memory that a block can opt in to on sm_75, the least of the architectures there are kernels for.
SHARED_BYTES = 64 * 1024

#: ctypes of the scalar parameters, by NumPy dtype.
C_TYPES = {
    "int64": ctypes.c_longlong,
    "int32": ctypes.c_int,
    "float64": ctypes.c_double,
    "float32": ctypes.c_float,
}


class EmulatedDevice(HostDevice):
    """Runs every launch twice, in ascending and in descending order of blocks and threads.

    A launch raises EmulationError where a GPU could go wrong: an array shorter than its parameter's
    size, a write outside an array or into an input, an output element that is not written or is
    read, overlapping outputs, results that depend on the order, a barrier not all threads reach. What a block
    takes of shared memory is held to SHARED_BYTES, as a GPU's device holds it.
    """

    name = "emulated"
    shared_bytes = SHARED_BYTES

    def _prepare(
        self, kernel: Kernel, variant: Variant, shape: LaunchShape, arguments: list[Any]
    ) -> Callable[[], None]:
        library = load(kernel, variant)
        library.opted_in = self.shared_bytes
        library.check_shape(shape)
        sizes = declared_sizes(kernel, arguments)
        _require_disjoint(kernel, arguments, sizes)

        def call() -> None:
            turns = [_run(kernel, library, shape, arguments, sizes, turn) for turn in (0, 1)]
            for parameter, argument, first, second in zip(kernel.parameters, arguments, *turns, strict=True):
                if first is not None:
                    _require_written_once(kernel, parameter, first, second)
                    argument.reshape(-1)[: first.size] = first

        return call


@functools.cache
def load(kernel: Kernel, variant: Variant) -> Library:
    """The compiled text of one variant."""
    return Library(kernel.name, compile_text(kernel.source(variant), kernel.name, kernel.parameters))


def declared_sizes(kernel: Kernel, arguments: list[Any]) -> list[int]:
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


def _require_disjoint(kernel: Kernel, arguments: list[Any], sizes: list[int]) -> None:
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
    kernel: Kernel, library: Library, shape: LaunchShape, arguments: list[Any], sizes: list[int], turn: int
) -> list[np.ndarray | None]:
    """One launch on copies; the new values of the arrays that are written, None for the others."""
    buffers: list[Buffer | None] = []
    values: list[Any] = []
    results: list[np.ndarray | None] = []
    try:
        for parameter, argument, size in zip(kernel.parameters, arguments, sizes, strict=True):
            if not parameter.is_array:
                buffers.append(None)
                values.append(C_TYPES[argument.dtype.name](argument.item()))
                continue
            buffer = Buffer(size, argument.dtype)
            buffers.append(buffer)
            values.append(ctypes.c_void_p(buffer.address))
            if parameter.role == "out":
                buffer.array[...] = poison(argument.dtype, turn)
            else:
                buffer.array[...] = argument.reshape(-1)[:size]
        library.run(values, shape, descending=turn == 1)
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
    kernel: Kernel, parameter: Parameter, first: np.ndarray, second: np.ndarray
) -> None:
    where = f"{kernel.name}: {parameter.name}"
    if parameter.role == "out":
        left = (bits(first) == bits(poison(first.dtype, 0))) & (bits(second) == bits(poison(second.dtype, 1)))
        if left.any():
            raise EmulationError(
                f"{where}[{left.argmax()}] was not written, {left.sum()} of {left.size} elements were not"
            )
    differ = bits(first) != bits(second)
    if differ.any():
        element = int(differ.argmax())
        raise EmulationError(
            f"{where}[{element}] is {first[element]} with threads in ascending order and {second[element]} "
            f"in descending order: a race, or an output that is read ({differ.sum()} elements differ)"
        )
