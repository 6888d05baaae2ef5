"""End-to-end Jacobians of feed-forward networks: operators, and singular values along depth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, svds

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.records.record import JacobianRecord


def end_to_end(records: Sequence[JacobianRecord], *, sample: int = 0) -> LinearOperator:
    """The Jacobian of the output with respect to the input, as an operator that forms no product.

    Parameters
    ----------
    records : sequence of JacobianRecord
        One per layer, in order, without recurrent layers and residual blocks.
    sample : int, default 0
        The sample of the batch.

    Returns
    -------
    scipy.sparse.linalg.LinearOperator, (outputs, inputs)
        It costs one sparse product per layer. Pass it to `scipy.sparse.linalg.svds`.

    Raises
    ------
    ShapeError
        Where the records are no chain of layers.

    Examples
    --------
    >>> operator = bp.end_to_end(net.transposed_jacobians())
    >>> largest = scipy.sparse.linalg.svds(operator, 10, return_singular_vectors=False)
    """
    return _operator(_matrices("end_to_end", records, sample))


def depth_singular_values(
    records: Sequence[JacobianRecord], *, count: int | None = None, sample: int = 0
) -> list[np.ndarray]:
    """The singular values of the Jacobian of every layer's output with respect to the network's input.

    Parameters
    ----------
    records, sample
        As for `bp.end_to_end`.
    count : int, optional
        The number of largest singular values, by `svds` without forming a product. All by default.

    Returns
    -------
    list of ndarray
        Per layer the singular values, largest first. Their ratio ``s[0] / s[-1]`` is the condition number.

    Raises
    ------
    ShapeError
        As `bp.end_to_end`.

    Examples
    --------
    >>> spectra = bp.depth_singular_values(net.transposed_jacobians())
    >>> conditions = [s[0] / s[-1] for s in spectra]
    """
    owner = "depth_singular_values"
    matrices = _matrices(owner, records, sample)
    if count is None:
        product, result = matrices[0].T.toarray().astype(np.float64), []
        for number, matrix in enumerate(matrices):
            product = matrix.T @ product if number else product
            result.append(np.linalg.svd(product, compute_uv=False))
        return result
    count = as_integer(owner, "count", count, 1)
    least = min(min(matrix.shape) for matrix in matrices)
    if count >= least:
        raise ShapeError(
            f"{owner} got count={count}: it must be below {least}, the smallest side of a product"
        )
    prefixes = (_operator(matrices[: end + 1]) for end in range(len(matrices)))
    found = (svds(prefix, count, return_singular_vectors=False, rng=0) for prefix in prefixes)
    return [np.sort(values)[::-1] for values in found]


def _matrices(owner: str, records: Any, sample: int) -> list[scipy.sparse.csr_array]:
    """The transposed Jacobians of consecutive layers."""
    for record in records:
        if record.inner is not None or record.path:
            raise ShapeError(
                f"{owner} got {record.label!r}: pass layers that follow each other, without recurrent layers "
                "and residual blocks"
            )
    for before, after in pairwise(records):
        if before.pattern.shape[1] != after.pattern.shape[0]:
            raise ShapeError(
                f"{owner} got {before.label!r} with {before.pattern.shape[1]} outputs before "
                f"{after.label!r} with {after.pattern.shape[0]} inputs: pass consecutive layers"
            )
    if not len(records):
        raise ShapeError(f"{owner} got no records: pass those of net.transposed_jacobians()")
    return [record.to_scipy(sample) for record in records]


def _operator(matrices: list[scipy.sparse.csr_array]) -> LinearOperator:
    """The product of the transposes, the last one first."""

    def forward(v: np.ndarray) -> np.ndarray:
        for matrix in matrices:
            v = matrix.T @ v
        return v

    def backward(v: np.ndarray) -> np.ndarray:
        for matrix in reversed(matrices):
            v = matrix @ v
        return v

    shape = matrices[-1].shape[1], matrices[0].shape[0]
    return LinearOperator(
        shape, matvec=forward, rmatvec=backward, matmat=forward, rmatmat=backward, dtype=np.float64
    )
