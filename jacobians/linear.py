"""The transposed Jacobian of a linear layer: Wᵀ, without the entries its mask removes."""

from __future__ import annotations

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.jacobians.weights import WeightJacobian


class LinearJacobian(WeightJacobian):
    """(∂y/∂x)ᵀ = Wᵀ of y = x Wᵀ + b, repeated block-diagonally for `positions` leading elements.

    Parameters
    ----------
    mask : array or None, default: None
        A bool mask (out_features, in_features), True where the weight may differ from 0. None means
        everywhere.
    """

    def __init__(
        self, in_features: int, out_features: int, positions: int = 1, mask: np.ndarray | None = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features, self.positions = in_features, out_features, positions
        self.mask = mask

    def bytes_to_make(self) -> int:
        block = (
            self.in_features * self.out_features if self.mask is None else int(np.count_nonzero(self.mask))
        )
        return 17 * block * (self.positions + 1)

    def make_entries(self) -> tuple[Pattern, np.ndarray]:
        rows, columns = self.in_features, self.out_features
        mask = np.ones((rows, columns), bool) if self.mask is None else np.asarray(self.mask, bool).T
        row, column = np.nonzero(mask)
        count = row.size
        position = np.arange(self.positions)[:, None]
        indptr = np.concatenate([[0], np.cumsum(np.tile(mask.sum(1), self.positions))])
        pattern = Pattern(
            (rows * self.positions, columns * self.positions),
            indptr,
            (column[None, :] + columns * position).reshape(-1),
        )
        weights = np.broadcast_to(column * rows + row, (self.positions, count))
        return pattern, np.ascontiguousarray(weights).reshape(-1)
