"""How arrays lie end to end in one: whole ones, or the kept values of some of them alone."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from bppsa_cupy.devices import Array, Device

#: Every array starts at a multiple of this many bytes, as vector loads and BLAS like it.
ALIGNMENT = 64

Spans = dict[str, tuple[slice, tuple[int, ...]]]


def lay_out(dtype: np.dtype, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Spans, int]:
    """Where each array lies in `flat`, with its shape, by name; and the values of `flat`."""
    step = ALIGNMENT // dtype.itemsize
    spans, end = {}, 0
    for name, shape in shapes.items():
        size = math.prod(shape)
        spans[name] = slice(end, end + size), shape
        end += -(-size // step) * step
    return spans, end


class KeptLayout:
    """Where the values of a network's arrays lie in one flat array, which holds the kept values alone of some
    arrays and all values of the others.

    shapes  of the arrays by name
    kept    the kept positions by name, in the flattened array, ascending
    size    of an array laid out so, the zeros that align its parts included
    whole   of one laid out as `ParameterSet.flat`
    places  in such a one, by name
    """

    def __init__(
        self,
        device: Device,
        dtype: np.dtype,
        shapes: Mapping[str, tuple[int, ...]],
        kept: Mapping[str, np.ndarray],
    ) -> None:
        whole, self.whole = lay_out(dtype, shapes)
        held = {name: (kept[name].size,) if name in kept else shape for name, shape in shapes.items()}
        self.device, self.kept = device, dict(kept)
        self.spans, self.size = lay_out(dtype, held)
        self.places = {name: span for name, (span, _) in whole.items()}
        # What aligns arrays has its place after all, where nothing is read.
        self._index = np.full(self.size, self.whole, np.int64)
        for name, (span, _) in self.spans.items():
            self._index[span] = self.places[name].start + (
                kept[name] if name in kept else np.arange(span.stop - span.start)
            )
        self._on_device = device.asarray(self._index)
        self._uploaded = {name: device.asarray(array.astype(np.int64)) for name, array in kept.items()}

    @property
    def positions(self) -> Array:
        """(size,) where each value lies in `ParameterSet.room`, uint64."""
        return self._on_device.view(np.uint64)

    def on_device(self, name: str) -> Array | None:
        """The kept positions of a weight, int64; None of an array of which all are."""
        return self._uploaded.get(name)

    def is_equal(self, other: KeptLayout | None) -> bool:
        """Whether `other` lays out the same values."""
        return self is other or (other is not None and np.array_equal(self._index, other._index))

    def expand(self, values: Array) -> Array:
        """A new array laid out as `flat`, with zeros for what is not kept."""
        result = self.device.zeros((self.whole + 1,), values.dtype)
        result[self._on_device] = values
        return result[: self.whole]

    def compress(self, flat: Array) -> Array:
        """A new array of what is kept of one laid out as `flat`, on the host or the device."""
        here = isinstance(flat, np.ndarray)
        xp, index = (np, self._index) if here else (self.device.xp, self._on_device)
        return xp.append(flat, xp.zeros(1, flat.dtype))[index]
