"""Machine code that is compiled before it is needed, by processes beside each other."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from contextlib import suppress

from bppsa_cupy.devices.cubins import machine_code
from bppsa_cupy.devices.cuda import import_cupy
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import Variant


def compile_ahead(wanted: Iterable[tuple[str, Variant]], processes: int) -> int:
    """Leave the machine code of kernels, by name and variant, where launches look for it; how many these are.

    What does not compile raises where it is launched.
    """
    # What compiles longest begins first.
    work = sorted(set(wanted), key=lambda one: -len(KERNELS[one[0]].source(one[1])))
    if processes < 2:
        for one in work:
            _compile(one)
    else:
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            pool.map(_compile, work, chunksize=1)
    return len(work)


def _compile(one: tuple[str, Variant]) -> None:
    name, variant = one
    with suppress(DeviceError):
        machine_code(import_cupy(), KERNELS[name], variant)
