"""A network's buffers in PyTorch's sense: running statistics and their like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import ShapeError


class BufferSet(Mapping[str, Array]):
    """A dict of name -> array of what layers hold beside their parameters: no gradient, no optimizer.

    The names and the arrays stay; forward passes and `take` change their values. Integers are int64, all else
    is of the network's dtype.
    """

    def __init__(self, device: Device, dtype: np.dtype, initial: Mapping[str, np.ndarray]) -> None:
        self.device, self.dtype = device, dtype
        self._arrays = {}
        for name, value in initial.items():
            kind = np.dtype(np.int64) if value.dtype.kind == "i" else dtype
            self._arrays[name] = device.empty(value.shape, kind)
            self._arrays[name][...] = device.asarray(value, dtype=kind)

    @property
    def names(self) -> list[str]:
        """The names of all of the network's buffers; of several ranks, one may hold a part of them."""
        return list(self)

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def converted(self, arrays: Mapping[str, Any]) -> dict[str, Array]:
        """What `take` takes, from arrays of the same names; ShapeError naming both shapes."""
        found = {}
        for name, own in self.items():
            array = found[name] = self.device.asarray(arrays[name], dtype=own.dtype)
            if array.shape != own.shape:
                raise ShapeError(f"{name} has shape {own.shape}, got {tuple(array.shape)}")
        return found

    def take(self, arrays: Mapping[str, Array]) -> None:
        """Set the values from arrays that `converted` gave."""
        for name, array in arrays.items():
            self[name][...] = array

    def to_host(self) -> dict[str, np.ndarray]:
        """Copies on the host, by name."""
        return {name: np.array(self.device.to_host(array)) for name, array in self.items()}
