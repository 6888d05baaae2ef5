"""End-to-end Jacobians of feed-forward networks: operators, and singular values along depth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator, svds

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.records.record import JacobianRecord


def end_to_end(records: Sequence[JacobianRecord], *, sample: int = 0) -> LinearOperator:
    """Return the Jacobian of a network's output with respect to its input, as a linear operator.

    Parameters
    ----------
    records : sequence of JacobianRecord
        The records of all layers in order. Residual blocks are allowed, recurrent layers are not. Batch
        normalization has records in evaluation mode only.
    sample : int, default: 0
        The sample of the batch.

    Returns
    -------
    scipy.sparse.linalg.LinearOperator, (outputs, inputs)
        It costs one sparse product per layer. Pass it to `scipy.sparse.linalg.svds`.

    Raises
    ------
    ShapeError
        If the records are not a chain of layers and blocks.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> layers = [bp.Linear(3, 4), bp.ReLU(), bp.Linear(4, 2)]
    >>> net = bp.Sequential(layers, input_shape=(3,), device="host")
    >>> y = net.forward(np.ones((1, 3), np.float32))
    >>> bp.end_to_end(net.transposed_jacobians()).shape
    (2, 3)
    """
    return _chain(_blocks("end_to_end", records, sample))


def depth_singular_values(
    records: Sequence[JacobianRecord], *, count: int | None = None, sample: int = 0
) -> list[np.ndarray]:
    """Compute the singular values of the Jacobian of each layer or block output with respect to the input.

    Parameters
    ----------
    records, sample
        See `bp.end_to_end`.
    count : int, optional
        The number of largest singular values, by `svds` without forming a product. All by default.

    Returns
    -------
    list of ndarray
        Per layer or residual block the singular values, largest first. Their ratio ``s[0] / s[-1]`` is the
        condition number.

    Raises
    ------
    ShapeError
        See `bp.end_to_end`.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> layers = [bp.Linear(3, 4), bp.ReLU(), bp.Linear(4, 2)]
    >>> net = bp.Sequential(layers, input_shape=(3,), device="host")
    >>> y = net.forward(np.ones((1, 3), np.float32))
    >>> [len(s) for s in bp.depth_singular_values(net.transposed_jacobians())]
    [3, 3, 2]
    """
    owner = "depth_singular_values"
    blocks = _blocks(owner, records, sample)
    if count is None:
        product, result = np.eye(blocks[0].shape[1]), []
        for block in blocks:
            product = block @ product
            result.append(np.linalg.svd(product, compute_uv=False))
        return result
    count = as_integer(owner, "count", count, 1)
    least = min(min(block.shape) for block in blocks)
    if count >= least:
        raise ShapeError(
            f"{owner} got count={count}: it must be below {least}, the smallest side of a product"
        )
    prefixes = (_chain(blocks[: end + 1]) for end in range(len(blocks)))
    found = (svds(prefix, count, return_singular_vectors=False, rng=0) for prefix in prefixes)
    return [np.sort(values)[::-1] for values in found]


def _blocks(owner: str, records: Any, sample: int, depth: int = 0) -> list[LinearOperator]:
    """The Jacobians of consecutive layers and residual blocks.

    depth  position of the layer's number in `_place`: 0 in the network, 2 in a block, 4 in a block of a block
    """
    found: list[tuple[str, LinearOperator]] = []
    for _, group in groupby(records, lambda record: _place(owner, record)[depth]):
        members = list(group)
        branches = [_place(owner, record)[depth + 1 : depth + 2] for record in members]
        if not any(branches):
            matrices = (record.to_scipy(sample).T.astype(np.float64) for record in members)
            labels = (record.label for record in members)
            found += zip(labels, map(aslinearoperator, matrices), strict=True)
            continue
        label, sides = members[0].label, []
        for name in (["body"], ["shortcut"]):
            inside = [one for one, branch in zip(members, branches, strict=True) if branch == name]
            sides += [_chain(_blocks(owner, inside, sample, depth + 2))] if inside else []
        if len(sides) < 2:
            sides.append(aslinearoperator(scipy.sparse.eye_array(sides[0].shape[1])))
        if sides[0].shape != sides[1].shape:
            raise ShapeError(
                f"{owner} got a residual block from {label!r} with branches {sides[0].shape} and "
                f"{sides[1].shape}: pass all records of the block"
            )
        found.append((label, sides[0] + sides[1]))
    for (before, first), (after, second) in pairwise(found):
        if first.shape[0] != second.shape[1]:
            raise ShapeError(
                f"{owner} got {before!r} with {first.shape[0]} outputs before {after!r} with "
                f"{second.shape[1]} inputs: pass consecutive layers"
            )
    if not found:
        raise ShapeError(f"{owner} got no records: pass those of net.transposed_jacobians()")
    return [operator for _, operator in found]


def _place(owner: str, record: JacobianRecord) -> list[str]:
    """The numbers of layers and names of branches that lead to a layer, such as ["3", "body", "0"]."""
    place = [str(record.layer), *filter(None, record.path.split("."))]
    if record.inner is not None or not {"body", "shortcut"}.issuperset(place[1::2]) or len(place) % 2 == 0:
        raise ShapeError(
            f"{owner} got {record.label!r}: pass layers and residual blocks of bp.Sequential, in order and "
            "without recurrent layers"
        )
    return place


def _chain(blocks: list[LinearOperator]) -> LinearOperator:
    """The product of Jacobians, the last one first."""

    def forward(v: np.ndarray) -> np.ndarray:
        for block in blocks:
            v = block @ v
        return v

    def backward(v: np.ndarray) -> np.ndarray:
        for block in reversed(blocks):
            v = block.H @ v
        return v

    shape = blocks[-1].shape[0], blocks[0].shape[1]
    return LinearOperator(
        shape, matvec=forward, rmatvec=backward, matmat=forward, rmatmat=backward, dtype=np.float64
    )
