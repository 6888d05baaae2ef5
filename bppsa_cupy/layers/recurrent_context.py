"""What a recurrent layer holds for one pass."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.layers.base import Context, Shape


@dataclass
class RecurrentContext(Context):
    """A recurrent layer's part of a pass.

    initial         the state before the first step, in PyTorch's shape: (h,) or (h, c), or None
    final_gradient  the gradient by the final state, likewise
    want_states     whether the way back gives the gradients by the initial state
    went_back       whether it went back since its forward pass
    """

    initial: tuple[Array, ...] | None = None
    final_gradient: tuple[Array, ...] | None = None
    want_states: bool = True
    went_back: bool = False

    @property
    def forward_ways(self) -> tuple[str, ...]:
        """How the pass went over time, and why: a line an inner layer and direction."""
        return ()

    @property
    def backward_ways(self) -> tuple[str, ...]:
        """How it went back, likewise; empty before it did."""
        return ()

    def let_go(self) -> None:
        super().let_go()
        self.initial = self.final_gradient = self.lengths = None

    def rebind(self, parameters: dict[str, Array]) -> None:
        """Take other parameters, on the same buffers."""
        self.parameters = parameters

    def missing_bytes(self, shapes: Mapping[str, Shape]) -> int:
        """Bytes that a `reserve` of these would take from the device."""
        return self.dtype.itemsize * sum(
            math.prod(shape)
            for name, shape in shapes.items()
            if name not in self._buffers or self._buffers[name].size < math.prod(shape)
        )

    def reserve(self, shapes: Mapping[str, Shape]) -> dict[str, Array]:
        """A `buffer` for each name and shape.

        Raises DeviceError with the bytes needed and free, before anything is allocated.
        """
        needed = self.missing_bytes(shapes)
        if needed and needed > (free := self.device.free_memory()):
            raise DeviceError(
                f"{self.device.name}: a pass takes {needed} more bytes, {free} are free: use a smaller "
                "batch, or shorter sequences"
            )
        return {name: self.buffer(name, shape) for name, shape in shapes.items()}
