"""Sizes of a recurrent layer's passes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from bppsa_cupy.timescan.cells import Cell


@dataclass(frozen=True)
class WalkSize:
    """Sizes of a walk over time: the cell, T, B, H, and the bytes of a value."""

    cell: Cell
    steps: int
    batch: int
    hidden: int
    itemsize: int

    @property
    def state(self) -> int:
        """S, the elements of one sample's state."""
        return self.cell.states * self.hidden

    @property
    def scalars(self) -> tuple[int, int, int]:
        """T, H and B, as kernels take them."""
        return self.steps, self.hidden, self.batch

    def chunks(self, chunk: int) -> int:
        """How many chunks of `chunk` steps there are, the last of which may be shorter."""
        return -(-self.steps // chunk)

    def chunk_lengths(self) -> Iterator[int]:
        """Chunk lengths worth a look, from short to long: about twelve an octave of their number."""
        seen, chunks = 0, float(self.steps)
        while chunks >= 2:
            length = self.chunks(int(chunks))
            if length != seen:
                yield length
            seen, chunks = length, chunks / 1.06

    def chunk_bytes(self, chunk: int) -> int:
        """Bytes a chunked pass back takes beside the arrays a serial one has: maps, exponents, offsets,
        boundaries."""
        chunks, size = self.chunks(chunk), self.state
        maps = (chunks - 1) * self.batch * size
        return (maps * size + maps + 2 * chunks * size * self.batch) * self.itemsize + maps * 4

    def fitting_chunk(self, free: int) -> int | None:
        """The shortest chunk length whose pass back takes at most `free` bytes; None where none does."""
        longer = bisect_left(range(1, self.steps + 1), True, key=lambda c: self.chunk_bytes(c) <= free)
        return longer + 1 if longer < self.steps else None

    def newton_bytes(self, chunk: int) -> int:
        """Bytes Newton's iteration takes beside the walk's own arrays: the walk by chunks, maps and
        corrections."""
        cell, chunks, size = self.cell, self.chunks(chunk), self.state
        # The input is copied once more on its way into chunks.
        rows = 2 * cell.gates * self.hidden + size + cell.kept * self.hidden
        values = chunks * self.batch * (chunk * rows + size * size + 8 * size)
        return values * self.itemsize + 4 * chunks * self.batch * size


@dataclass(frozen=True)
class StackSize:
    """Sizes of a stack: those of each walk, F, inner layers, directions, whether there are biases, and
    whether every step is put out or the last state alone."""

    walk: WalkSize
    inputs: int
    layers: int
    directions: int
    bias: bool
    every_step: bool

    def inputs_of(self, layer: int) -> int:
        """Features of an inner layer's input."""
        return self.directions * self.walk.hidden if layer else self.inputs
