"""How arrays lie end to end in one flat array, of pruned weights only the kept values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device

#: Every array starts at a multiple of this many bytes, as vector loads and BLAS like it.
ALIGNMENT = 64

Spans = dict[str, tuple[slice, tuple[int, ...]]]


def lay_out(dtype: np.dtype, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Spans, int]:
    """Return the position in `flat` and the shape of each array, and the number of values of `flat`."""
    step = ALIGNMENT // dtype.itemsize
    spans, end = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        spans[name] = slice(end, end + size), shape
        end += -(-size // step) * step
    return spans, end


class Layout:
    """Positions of named arrays in one flat array.

    Attributes
    ----------
    shapes : mapping of str to tuple of int
        Shapes of the arrays.
    kept : mapping of str to array
        Kept positions, flattened and ascending, of pruned arrays. `flat` stores only these values of them.
    spans : mapping
        Position and shape of each array in `flat`.
    size, dense_size : int
        Size of `flat` with the zeros that align the arrays, and the size without `kept`.
    """

    def __init__(
        self,
        device: Device,
        dtype: np.dtype,
        shapes: Mapping[str, tuple[int, ...]],
        kept: Mapping[str, np.ndarray],
    ) -> None:
        self.device, self.dtype, self.shapes, self.kept = device, dtype, dict(shapes), dict(kept)
        held = {name: (kept[name].size,) if name in kept else shape for name, shape in shapes.items()}
        self.spans, self.size = lay_out(dtype, held)
        self._dense, self.dense_size = lay_out(dtype, shapes)
        self._index = {name: device.asarray(positions.astype(np.int64)) for name, positions in kept.items()}

    def is_equal(self, other: Layout) -> bool:
        """Whether `other` lays out the same values of arrays of the same names, shapes, dtype and device."""
        if self is other:
            return True
        ours, theirs = ((of.device, of.dtype, of.shapes, of.kept.keys()) for of in (self, other))
        return ours == theirs and all(np.array_equal(self.kept[n], other.kept[n]) for n in self.kept)

    def view(self, flat: Array, name: str) -> Array:
        """The values of an array in `flat`: all in its shape, or (kept,) those that are kept."""
        span, shape = self.spans[name]
        return flat[span].reshape(shape)

    def part_of(self, names: Sequence[str]) -> slice:
        """Return the slice of `flat` that holds consecutive arrays, up to the next array."""
        order = list(self.spans)
        if not names:
            return slice(0, 0)
        behind = order.index(names[-1]) + 1
        stop = self.spans[order[behind]][0].start if behind < len(order) else self.size
        return slice(self.spans[names[0]][0].start, stop)

    def ends_arrays(self, start: Any, stop: Any) -> bool:
        """Whether a part of `flat` begins and ends where arrays do, the zeros after them included."""
        bounds = [*(span.start for span, _ in self.spans.values()), self.size]
        return type(start) is type(stop) is int and start in bounds and stop in bounds and start <= stop

    def positions(self, name: str, flat: Array) -> Array:
        """The kept positions of a pruned array, where `flat` is: on the host or on the device."""
        return self.kept[name] if isinstance(flat, np.ndarray) else self._index[name]

    def dense(self, flat: Array, name: str) -> Array:
        """A new array of the values of a pruned array, with zeros elsewhere."""
        result = self._zeros(flat, math.prod(self.shapes[name]))
        result[self.positions(name, flat)] = flat[self.spans[name][0]]
        return result.reshape(self.shapes[name])

    def expand(self, flat: Array) -> Array:
        """`flat`, or a new array laid out without `kept`, with zeros for what is not kept."""
        if not self.kept:
            return flat
        result = self._zeros(flat, self.dense_size)
        for name, (place, _) in self._dense.items():
            target = result[place]
            target[self.positions(name, flat) if name in self.kept else ...] = flat[self.spans[name][0]]
        return result

    def compress(self, flat: Array) -> Array:
        """The inverse of `expand`: the values that are kept of an array laid out without `kept`."""
        if not self.kept:
            return flat
        result = self._zeros(flat, self.size)
        for name, (place, _) in self._dense.items():
            source = flat[place]
            result[self.spans[name][0]] = source[self.positions(name, flat)] if name in self.kept else source
        return result

    def _zeros(self, flat: Array, size: int) -> Array:
        return (
            np.zeros(size, flat.dtype)
            if isinstance(flat, np.ndarray)
            else self.device.zeros((size,), flat.dtype)
        )
