"""Other values of a stage's parameters than the present ones: stashed copies, and predictions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bppsa_cupy.devices import Array
from bppsa_cupy.network.parameters import ParameterSet
from bppsa_cupy.training.optimizer import Optimizer

#: Values that are exchanged at a time.
BLOCK = 1 << 14


@dataclass
class Stash:
    """Copies of a stage's parameters at the updates that its passes alive went forward with.

    values   the stage's part of the network's parameters
    updates  made so far
    """

    values: Array
    updates: int = 0
    _versions: dict[int, int] = field(default_factory=dict)
    _copies: dict[int, Array] = field(default_factory=dict)
    _free: list[Array] = field(default_factory=list)
    _block: Array | None = None

    def forward(self, batch: int) -> None:
        """Note that a batch goes forward with the present values."""
        self._versions[batch] = self.updates

    @contextmanager
    def back(self, batch: int) -> Iterator[None]:
        """Let the parameters have, for a while, the values that a batch went forward with."""
        copy = self._copies.get(self._versions.pop(batch))
        if copy is None:
            yield
            return
        if self._block is None:  # before the first value is exchanged, so that none fails half way
            self._block = self.values[:BLOCK].copy()
        _exchange(self.values, copy, self._block)
        try:
            yield
        finally:
            _exchange(self.values, copy, self._block)

    def update(self) -> None:
        """Copy the present values, which an update follows, if a pass needs them; drop what none needs."""
        needed = set(self._versions.values())
        for version in [version for version in self._copies if version not in needed]:
            self._free.append(self._copies.pop(version))
        if self.updates in needed:
            copy = self._copies[self.updates] = self._free.pop() if self._free else self.values.copy()
            copy[...] = self.values
        self.updates += 1


def _exchange(one: Array, other: Array, block: Array) -> None:
    """Swap the values of two arrays, without a third of their size: a block at a time."""
    for start in range(0, one.size, BLOCK):
        piece = slice(start, start + BLOCK)
        kept = block[: one[piece].size]
        kept[...] = one[piece]
        one[piece] = other[piece]
        other[piece] = kept


@contextmanager
def predicted(parameters: ParameterSet, optimizer: Optimizer, part: slice, updates: int) -> Iterator[None]:
    """Let a part of the parameters have, for a while, the values that the optimizer predicts."""
    if not updates:
        yield
        return
    values = parameters.flat[part]
    ahead = optimizer.predict(updates, part)
    present = values.copy()
    values[...] = ahead
    try:
        yield
    finally:
        values[...] = present
