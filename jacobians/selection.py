"""The transposed Jacobian of a layer that copies elements of its input to its output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.jacobians.base import TransposedJacobian

#: An index into outputs (B, ...), and the index into inputs (B, ...) whose elements are copied there.
Piece = tuple[tuple[slice, ...], tuple[slice, ...]]


class SelectionJacobian(TransposedJacobian):
    """1 in the row of an input element, in the columns of its copies.

    Parameters
    ----------
    input_shape, output_shape : tuple of int
        Without the batch.
    pieces : sequence of Piece
        The copies; an output element that is no copy has an empty column.
    """

    depends_on = "nothing"

    def __init__(
        self, input_shape: tuple[int, ...], output_shape: tuple[int, ...], pieces: Sequence[Piece]
    ) -> None:
        self.input_shape, self.output_shape, self.pieces = input_shape, output_shape, pieces

    def make_pattern(self) -> Pattern:
        numbers = np.arange(np.prod(self.input_shape)).reshape(1, *self.input_shape)
        source = np.full((1, *self.output_shape), -1)
        for place, taken in self.pieces:
            source[place] = numbers[taken]
        counts = np.bincount(source.reshape(-1) + 1, minlength=numbers.size + 1)
        columns = np.argsort(source, axis=None, kind="stable")[counts[0] :]
        indptr = np.concatenate([[0], np.cumsum(counts[1:])])
        return Pattern((numbers.size, source.size), indptr, columns)

    def fill(
        self, device: Device, parameters: Mapping[str, Array], saved: Mapping[str, Array], values: Array
    ) -> None:
        values[...] = 1
