"""A network's buffers in PyTorch's sense: running statistics and their like."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.network.layout import lay_out
from bppsa_cupy.network.parameters import converted


class BufferSet(Mapping[str, Array]):
    """A dict of name -> array of what layers hold beside their parameters: no gradient, no optimizer.

    Forward passes, `assign` and `restore` change the values. Integers are int64, all other arrays have the
    network's dtype.
    """

    def __init__(self, device: Device, dtype: np.dtype, initial: Mapping[str, np.ndarray]) -> None:
        self.device, self.dtype = device, dtype
        kinds = {n: np.dtype(np.int64) if v.dtype.kind == "i" else dtype for n, v in initial.items()}
        sizes = {name: (value.size * kinds[name].itemsize,) for name, value in initial.items()}
        spans, end = lay_out(np.dtype(np.uint8), sizes)
        # The bytes of all arrays: one copy saves them.
        self._all: Array = device.empty((end,), np.uint8)
        self._saved: Array = None
        self._arrays = {}
        for name, value in initial.items():
            array = self._all[spans[name][0]].view(kinds[name]).reshape(value.shape)
            array[...] = device.asarray(value, dtype=kinds[name])
            self._arrays[name] = array

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def part(self, names: Mapping[str, str]) -> BufferSet:
        """The arrays under `names`' values, by `names`' keys: views of this set."""
        part = copy.copy(self)
        part._arrays = {name: self[theirs] for name, theirs in names.items()}
        return part

    def converted(self, arrays: Mapping[str, Any]) -> dict[str, Array]:
        """`arrays` as `assign` takes them. Raises ShapeError naming both shapes."""
        wanted = {name: (array.shape, array.dtype) for name, array in self.items()}
        return converted(self.device, arrays, wanted)

    def assign(self, arrays: Mapping[str, Array]) -> None:
        """Set the values from arrays that `converted` returned."""
        for name, array in arrays.items():
            self[name][...] = array

    def keep(self) -> None:
        """Save a copy of the values, in place of the last copy."""
        if self:
            if self._saved is None:
                self._saved = self.device.empty(self._all.shape, self._all.dtype)
            self._saved[...] = self._all

    def restore(self) -> None:
        """Set the values to the saved copy."""
        if self:
            self._all[...] = self._saved

    def to_host(self) -> dict[str, np.ndarray]:
        """Copies on the host, by name."""
        return {name: np.array(self.device.to_host(array)) for name, array in self.items()}
