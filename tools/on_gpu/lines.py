"""What the programs share: JSON lines, devices, arrays that are filled on the device."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.raw_kernels.kernel import ARRAY_TYPES, Kernel, Variant

#: Random numbers that an array is filled with again and again.
FILLING = 1 << 16


def tell(**line: Any) -> None:
    """Print one JSON object on a line, now: what was found stays when the process is killed."""
    json.dump(line, sys.stdout)
    sys.stdout.write("\n")
    sys.stdout.flush()


def summary(seconds: Sequence[float]) -> dict[str, Any]:
    """What a line says of samples of one time: the median, the quartiles, how many."""
    quartiles = [float(q) for q in np.percentile(seconds, (25, 75))]
    return {"seconds": float(np.median(seconds)), "quartiles": quartiles, "samples": len(seconds)}


def filled_arguments(
    device: Device, kernel: Kernel, variant: Variant, scalars: Mapping[str, Any], scale: float
) -> list[Any]:
    """Arguments of one launch: reals random, of standard deviation `scale`, lengths full, indices 0."""
    rng = np.random.default_rng(0)
    arguments: list[Any] = []
    for parameter in kernel.parameters:
        if not parameter.is_array:
            arguments.append(scalars[parameter.name])
            continue
        dtype = {"real": variant.real, "index": variant.index}.get(
            parameter.type, ARRAY_TYPES[parameter.type]
        )
        array = device.empty(int(eval(parameter.size, {"min": min, "max": max}, dict(scalars))), dtype)
        if parameter.name == "lengths":
            array[...] = scalars.get("steps", 1)
        elif parameter.type == "real" and parameter.role != "out":
            fill(array, device.asarray((scale * rng.standard_normal(FILLING)).astype(dtype)))
        else:
            array[...] = 0
        arguments.append(array)
    return arguments


def fill(array: Array, numbers: Array) -> None:
    """Fill a flat array with the numbers, again and again."""
    whole = array.size // numbers.size * numbers.size
    array[:whole].reshape(-1, numbers.size)[...] = numbers
    array[whole:] = numbers[: array.size - whole]
