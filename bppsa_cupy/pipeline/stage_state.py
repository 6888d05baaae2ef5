"""A stage in a process that trains, from one run of a schedule to the next."""

from __future__ import annotations

from bppsa_cupy.devices import Array
from bppsa_cupy.pipeline.stage import Stage, StagePass
from bppsa_cupy.pipeline.weights import Stash


class StageState:
    """A stage with what it keeps from one run to the next.

    own   where its parameters and gradients lie in `flat`
    free  passes that are not alive
    sum   of micro-batches' gradients
    """

    def __init__(self, stage: Stage, own: slice) -> None:
        self.stage, self.own = stage, own
        self.free: list[StagePass] = []
        self.sum: Array | None = None
        self._summed = 0
        self.stash: Stash | None = None

    def begin(self) -> None:
        """Forget what a run that was broken off has left."""
        self._summed = 0

    def add_gradients(self, flat: Array) -> None:
        """Add a micro-batch's gradients to the sum."""
        if self.sum is None:
            self.sum = flat[self.own].copy()
        elif self._summed:
            self.sum += flat[self.own]
        else:
            self.sum[...] = flat[self.own]
        self._summed += 1

    def take_sum(self, flat: Array) -> None:
        """Let the gradients be the sum, which begins anew."""
        flat[self.own] = self.sum
        self._summed = 0
