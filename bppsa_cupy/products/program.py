"""The launches of a planned product for arrays of one device, dtype and batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bppsa_cupy.devices import Array


@dataclass(frozen=True)
class Program:
    """Products of two, in order, the last of which gives the product.

    launches  of each the call that takes A, B and C, and the numbers of A and B: the factors have 0, 1, …,
              results those after
    room      the results of all but the last
    """

    launches: tuple[tuple[Callable[[Array, Array, Array], None], tuple[int, int]], ...]
    room: tuple[Array, ...]

    def run(self, arrays: Sequence[Array], out: Array) -> None:
        """Compute the product of the factors' values into `out`."""
        operands = [*arrays, *self.room, out]
        for number, (launch, (left, right)) in enumerate(self.launches, len(arrays)):
            launch(operands[left], operands[right], operands[number])
