"""Where the samples of a batch of padded sequences end."""

from __future__ import annotations

from typing import Any

import numpy as np

from bppsa_cupy.conversion import is_on_gpu
from bppsa_cupy.devices import Array, Device, get_device
from bppsa_cupy.errors import ShapeError


def check_lengths(lengths: np.ndarray, batch: int, steps: int) -> None:
    """Raise ShapeError, naming sample, length and T, unless lengths are (B,) integers from 1 to T."""
    if lengths.shape != (batch,) or lengths.dtype.kind not in "iu":
        raise ShapeError(
            f"got lengths of {lengths.dtype} and shape {lengths.shape}: pass integers of shape ({batch},) "
            f"for a batch of {batch}"
        )
    wrong = np.flatnonzero((lengths < 1) | (lengths > steps))
    if wrong.size:
        raise ShapeError(
            f"sample {wrong[0]} has length {lengths[wrong[0]]}: pass lengths from 1 to T = {steps}"
        )


def take_lengths(device: Device, lengths: Any, batch: int, steps: int) -> Array:
    """`lengths` (B,) as int64 on the device. Raises ShapeError naming sample, length and T.

    It is a copy. For those of the host nothing waits; for those of a GPU, which are looked at on the host,
    it waits until the GPU has made them. In a capture, where nothing can wait, they are not checked.
    """
    if device.capturing:
        return device.asarray(lengths, dtype=np.int64)
    if isinstance(lengths, device.xp.ndarray) or is_on_gpu(lengths):
        array = device.asarray(lengths)
        check_lengths(device.to_host(array), batch, steps)
    else:
        array = get_device("host").asarray(lengths)
        check_lengths(array, batch, steps)
    return device.asarray(array.astype(np.int64))
