"""A network's gradients; of layers whose masks keep little, those by the kept weights alone."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.network.layout import KeptLayout, lay_out
from bppsa_cupy.network.parameters import ParameterSet


class GradientSet(ParameterSet):
    """A network's gradients. Where a layer goes by the list of its kept weights, `flat` holds theirs alone,
    and `gradients[name]` is a new array, with zeros elsewhere, not to be written: `own[name]` has what is
    held."""

    @property
    def own(self) -> Mapping[str, Array]:
        """By name what lies in `flat`: (kept,) of such a weight, in the order of its positions, else the
        array."""
        return self._views

    def lay_out(self, layout: KeptLayout | None) -> None:
        """Take new arrays of zeros of this layout; none where the device has too little memory
        (DeviceError)."""
        shapes = {name: shape for name, (_, shape) in self._spans.items()}
        spans, size = lay_out(self.dtype, shapes) if layout is None else (layout.spans, layout.size)
        room = self.device.zeros((size + 1,), self.dtype)
        self.room, self.flat, self.layout = room, room[:size], layout
        self._views = {name: room[span].reshape(shape) for name, (span, shape) in spans.items()}

    def view(self, flat: Array, name: str) -> Array:
        if self.layout is None:
            return super().view(flat, name)
        span, shape = self.layout.spans[name]
        return flat[span].reshape(shape)

    def to_host(self) -> dict[str, np.ndarray]:
        return {name: np.array(self.device.to_host(array)) for name, array in self.items()}

    def __getitem__(self, name: str) -> Array:
        own, (_, shape) = self._views[name], self._spans[name]
        if self.layout is None or name not in self.layout.kept:
            return own
        dense = self.device.zeros((math.prod(shape),), self.dtype)
        dense[self.layout.on_device(name)] = own
        if isinstance(dense, np.ndarray):
            dense.flags.writeable = False
        return dense.reshape(shape)
