"""Where masks keep little: the values of the kept weights alone, and the dense arrays that show them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.network.layout import KeptLayout
from bppsa_cupy.raw_kernels.gathers import gather_fill


class KeptValues:
    """The present values of parameters, laid out as their gradients are: what passes of layers by lists read,
    and what an optimizer steps.

    Each such weight has its dense array, too, for who asks for it: `parameters[name]`. Until somebody has,
    nobody can set it, and its values are written there when they are asked for; from then on, they are at
    every step, and what is there is read before each pass.

    flat  (layout.size,)
    """

    def __init__(self, layout: KeptLayout, room: Array, handed_out: set[str]) -> None:
        """room: the dense arrays and one more place; handed_out: names of those that the caller may set."""
        self.layout, self._room, self._handed_out = layout, room, handed_out
        self.flat = layout.device.zeros((layout.size,), room.dtype)
        self._behind: set[str] = set()
        self._rest = [name for name in layout.spans if name not in layout.kept]
        self.take_all()

    def view(self, name: str) -> Array:
        """(kept,) the values of a weight."""
        return self.flat[self.layout.spans[name][0]]

    def take_all(self) -> None:
        """Take all values from the dense arrays."""
        self.layout.device.launch(
            gather_fill, self._room, self.layout.positions, self.flat, self._room.size, self.flat.size
        )
        self._behind.clear()

    def refresh(self, every: bool = False) -> None:
        """Take what the caller may have set; before a step `every` array of others, too."""
        for name in self.layout.kept:
            if name in self._handed_out and name not in self._behind:
                self._copy(name, self.view(name), back=False)
        for name in self._rest if every else ():
            self._copy(name, self.view(name), back=False)

    def stepped(self) -> None:
        """Note that `flat` has been updated, and let the dense arrays follow that are read."""
        for name in self._rest:
            self._copy(name, self.view(name), back=True)
        self._behind.update(self.layout.kept)
        self.catch_up(self._handed_out)

    def note_step(self) -> None:
        """Note that a graph has done what `stepped` does."""
        self._behind.update(self.layout.kept.keys() - self._handed_out)

    def catch_up(self, names: Iterable[str] | None = None) -> None:
        """Write the values to the dense arrays of these names, or of all, where they are behind."""
        for name in sorted(self._behind if names is None else self._behind.intersection(names)):
            self._copy(name, self.view(name), back=True)
            self._behind.discard(name)

    def hand_out(self) -> None:
        """Write all values: the caller may set any from now on."""
        self.catch_up()
        self._handed_out.update(self.layout.spans)

    def _copy(self, name: str, values: Array, back: bool) -> None:
        """Copy an array's values from the dense one, or back into it."""
        index, own = self.layout.on_device(name), self._room[self.layout.places[name]]
        if index is None:
            (own if back else values)[...] = values if back else own
        elif back:
            own[index] = values
        else:
            self.layout.device.launch(gather_fill, own, index.view(np.uint64), values, own.size, values.size)
