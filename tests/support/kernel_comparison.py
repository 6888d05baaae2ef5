"""A kernel's CUDA text against its twin, on one case."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tolerances import assert_close

from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.raw_kernels.frames.kernels import real_of
from bppsa_cupy.raw_kernels.frames.places import is_wide
from bppsa_cupy.raw_kernels.kernel import Kernel, LaunchShape, Variant


def by_twin(kernel: Kernel, variant: Variant, arguments: list[Any]) -> list[Any]:
    """The arguments after a launch of the twin on copies of them."""
    # The width of an index changes no value; one variant of the twin less to compile.
    of_twin = variant if variant.real == "float64" else Variant(variant.real)
    taken = [_cast_index(value, of_twin) for value in arguments]
    get_device("host").launch(kernel, *taken)
    return taken


def _cast_index(value: Any, variant: Variant) -> Any:
    """A copy of an array, in the variant's index dtype if it is one of indices; scalars as they are."""
    if not isinstance(value, np.ndarray):
        return value
    return value.astype(variant.index if value.dtype.kind == "u" and value.itemsize >= 4 else value.dtype)


def by_text(kernel: Kernel, device: Device, arguments: list[Any], turn: int) -> list[Any]:
    """The arguments after a launch of the text on a device; every other turn by few blocks, whose loops have
    then more than one round."""
    if turn % 2:
        kernel = _by_few(kernel)
    return launch_text(kernel, device, arguments)


def launch_text(kernel: Kernel, device: Device, inputs: Sequence[Any]) -> list[Any]:
    """The arguments after a launch on a device; arrays of walks are as on the host before and after."""
    placed = [
        device.asarray(value) if isinstance(value, np.ndarray) else value for value in turned(kernel, inputs)
    ]
    device.launch(kernel, *placed)
    results = [
        device.to_host(value) if isinstance(before, np.ndarray) else value
        for value, before in zip(placed, inputs, strict=True)
    ]
    left = turned(kernel, results, to_host=True)
    return [
        value.reshape(before.shape) if isinstance(before, np.ndarray) else value
        for value, before in zip(left, inputs, strict=True)
    ]


def turned(kernel: Kernel, arguments: Sequence[Any], to_host: bool = False) -> list[Any]:
    """Arguments, flat, whose arrays of walks have units innermost in place of samples, or the other way."""
    scalars = {p.name: v for p, v in zip(kernel.parameters, arguments, strict=True) if not p.is_array}
    result = []
    for parameter, value in zip(kernel.parameters, arguments, strict=True):
        if parameter.is_array:
            value = value.reshape(-1)
        if parameter.rows and value.size:
            rows, samples = (int(eval(text, {}, scalars)) for text in (parameter.rows, parameter.samples))
            by_step = value.reshape((-1, samples, rows) if to_host else (-1, rows, samples))
            value = np.ascontiguousarray(by_step.swapaxes(1, 2)).reshape(-1)
        result.append(value)
    return result


@functools.cache  # a device loads the text of each kernel object anew
def _by_few(kernel: Kernel) -> Kernel:
    """The kernel with launches of at most two blocks along each axis, but for walks that want a block each
    (frames/cuda/registers.cuh)."""

    def launch(scalars: Any) -> LaunchShape:
        shape = kernel.launch(scalars)
        if is_wide(kernel.variant_for(Variant(real_of(scalars["itemsize"])), scalars).layout):
            return shape
        return shape._replace(grid=tuple(min(blocks, 2) for blocks in shape.grid))

    return replace(kernel, launch=launch)


def assert_same(kernel: Kernel, results: list[Any], expected: list[Any], label: object) -> None:
    """Every array that the text left is the twin's, up to rounding; `label` is named where one is not."""
    names = [parameter.name for parameter in kernel.parameters]
    overlook_powers_of_zeros(*(dict(zip(names, values, strict=True)) for values in (results, expected)))
    for parameter, actual, wanted in zip(kernel.parameters, results, expected, strict=True):
        if parameter.is_array:
            assert_close(actual, wanted, length=256, label=f"{parameter.name} with {label}")


def overlook_powers_of_zeros(results: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Set the power of two of each column of zeros, which says nothing, to what is expected of it; of a
    kernel's arrays by name."""
    if not {"exponents", "maps"} <= expected.keys():
        return
    powers, wanted = results["exponents"], expected["exponents"]
    for column, values in enumerate(np.array_split(expected["maps"], max(1, powers.size))):
        if powers.size and not values.any():
            powers[column] = wanted[column]
