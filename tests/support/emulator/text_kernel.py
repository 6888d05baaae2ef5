"""A kernel given by its text, for tests of the emulator itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bppsa_cupy.raw_kernels.kernel import Kernel, LaunchShape, Parameter


def array_in(name: str, type: str, size: str) -> Parameter:
    """An array the kernel only reads."""
    return Parameter(name, type, "in", size)


def array_out(name: str, type: str, size: str) -> Parameter:
    """An array the kernel writes whole and never reads."""
    return Parameter(name, type, "out", size)


def array_inout(name: str, type: str, size: str) -> Parameter:
    """An array the kernel reads and writes, wholly or in part."""
    return Parameter(name, type, "inout", size)


def scalar(name: str, type: str = "size") -> Parameter:
    """A scalar: `size` (64-bit), `flag` (int), `double`, or `real_value` (the variant's real)."""
    return Parameter(name, type, "scalar")


def text_kernel(
    text: str,
    *parameters: Parameter,
    grid: int = 1,
    block: int | tuple[int, int, int] = 32,
    shared_bytes: int = 0,
    name: str = "probe",
    launch: Callable[[Mapping[str, Any]], LaunchShape] | None = None,
) -> Kernel:
    """A kernel called `name`, whose twin does nothing, on `grid` blocks unless `launch` says otherwise.

    text  the body of the kernel, or a whole text where it holds "__global__"
    """
    if "__global__" not in text:
        declarations = ", ".join(parameter.declaration() for parameter in parameters)
        text = f'#include "prelude.cuh"\nextern "C" __global__ void {name}({declarations})\n{{\n{text}\n}}\n'
    threads = block if isinstance(block, tuple) else (block, 1, 1)
    shape = LaunchShape((grid, 1, 1), threads, shared_bytes)
    return Kernel(name, tuple(parameters), launch or (lambda scalars: shape), lambda *arguments: None, text)
