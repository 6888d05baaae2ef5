"""A stand-in for a matrix of cupyx."""

from __future__ import annotations

import scipy.sparse
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures


class Csr:
    """What is asked of cupyx's csr_matrix."""

    def __init__(self, matrix: scipy.sparse.csr_matrix) -> None:
        self.matrix = matrix

    def __matmul__(self, other: Csr) -> Csr:
        return Csr(self.matrix @ other.matrix)

    def get(self) -> scipy.sparse.csr_matrix:
        return self.matrix
