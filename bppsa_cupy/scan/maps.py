"""A plan's integers on a device: uploaded once, whatever scans use them."""

from __future__ import annotations

import numpy as np

from bppsa_cupy.devices import Array, Device


class IndexMaps:
    """Device copies of integer arrays, one a host array and width; the host arrays are kept alive.

    copies  whether the device's memory is not the host's
    bytes   the device's memory that the copies have taken
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.copies = device.xp is not np
        self.bytes = 0
        self._copies: dict[tuple[int, int], tuple[np.ndarray, Array]] = {}

    def upload(self, *arrays: np.ndarray) -> list[Array]:
        """The arrays on the device, all of the widest one's width, as a kernel takes them."""
        width = max(array.dtype.itemsize for array in arrays)
        return [self._copy(array, width) for array in arrays]

    def _copy(self, array: np.ndarray, width: int) -> Array:
        key = id(array), width
        if key not in self._copies:
            widened = array.astype(np.int32 if width == 4 else np.int64, copy=False)
            self._copies[key] = array, self.device.upload_index(widened)
            self.bytes += widened.nbytes if self.copies else 0
        return self._copies[key][1]
