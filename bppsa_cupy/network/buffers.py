"""A network's buffers in PyTorch's sense: running statistics and their like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.network.layout import lay_out


class BufferSet(Mapping[str, Array]):
    """A dict of name -> array of what layers hold beside their parameters: no gradient, no optimizer.

    The names and the arrays stay; forward passes, `take` and `restore` change their values. Integers are
    int64, all else is of the network's dtype.
    """

    def __init__(self, device: Device, dtype: np.dtype, initial: Mapping[str, np.ndarray]) -> None:
        self.device, self.dtype = device, dtype
        kinds = {n: np.dtype(np.int64) if v.dtype.kind == "i" else dtype for n, v in initial.items()}
        sizes = {name: (value.size * kinds[name].itemsize,) for name, value in initial.items()}
        spans, end = lay_out(np.dtype(np.uint8), sizes)
        # Bytes of all arrays, so that one copy keeps them.
        self._all: Array = device.empty((end,), np.uint8)
        self._kept: Array = None
        self._arrays = {}
        for name, value in initial.items():
            array = self._all[spans[name][0]].view(kinds[name]).reshape(value.shape)
            array[...] = device.asarray(value, dtype=kinds[name])
            self._arrays[name] = array

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

    def keep(self) -> None:
        """Keep a copy of the values, in place of the last one."""
        if self:
            if self._kept is None:
                self._kept = self.device.empty(self._all.shape, self._all.dtype)
            self._kept[...] = self._all

    def restore(self) -> None:
        """Set the values to those that were kept last."""
        if self:
            self._all[...] = self._kept

    def to_host(self) -> dict[str, np.ndarray]:
        """Copies on the host, by name."""
        return {name: np.array(self.device.to_host(array)) for name, array in self.items()}
