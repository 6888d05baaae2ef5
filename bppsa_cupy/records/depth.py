"""End-to-end Jacobians of feed-forward networks: operators, and singular values along depth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator, svds

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.errors import ArgumentError, ShapeError
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
        A product of the operator with a vector computes one sparse product per layer. Pass the operator to
        `scipy.sparse.linalg.svds`, for example.

    Raises
    ------
    ShapeError, ArgumentError
        If the records are not those of consecutive layers and complete residual blocks.

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
    """Compute singular values of the Jacobian of every layer's output with respect to the network's input.

    Parameters
    ----------
    records, sample
        The records of all layers in order, without recurrent layers, and the sample: see `bp.end_to_end`.
    count : int, optional
        Compute only the `count` largest singular values, with `scipy.sparse.linalg.svds` and without forming
        products of Jacobians. `count` must be below the size of every layer. By default all are computed.

    Returns
    -------
    list of ndarray
        One array of singular values per layer or residual block, largest first. If all are computed,
        ``s[0] / s[-1]`` is the condition number.

    Raises
    ------
    ShapeError, ArgumentError
        If the records are not those of consecutive layers and complete blocks, or `count` is too large.

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
            f"{owner} got count={count}: pass a count below {least}, the smallest number of rows or columns"
        )
    prefixes = (_chain(blocks[: end + 1]) for end in range(len(blocks)))
    spectra = (svds(prefix, count, return_singular_vectors=False, rng=0) for prefix in prefixes)
    return [np.sort(values)[::-1] for values in spectra]


def _blocks(owner: str, records: Any, sample: int, depth: int = 0) -> list[LinearOperator]:
    """The Jacobians of consecutive layers and residual blocks.

    Parameters
    ----------
    depth : int, default: 0
        Position of the layer's number in `_place`: 0 in the network, 2 in a block, 4 in a block of a
        block.
    """
    blocks: list[tuple[str, LinearOperator]] = []
    for _, group in groupby(records, lambda record: _place(owner, record)[depth]):
        members = list(group)
        branches = [_place(owner, record)[depth + 1 : depth + 2] for record in members]
        if not any(branches):
            matrices = (record.to_scipy(sample).T.astype(np.float64) for record in members)
            labels = (record.label for record in members)
            blocks += zip(labels, map(aslinearoperator, matrices), strict=True)
            continue
        label, sides = members[0].label, []
        for name in (["body"], ["shortcut"]):
            inside = [member for member, branch in zip(members, branches, strict=True) if branch == name]
            sides += [_chain(_blocks(owner, inside, sample, depth + 2))] if inside else []
        if len(sides) < 2:
            sides.append(aslinearoperator(scipy.sparse.eye_array(sides[0].shape[1])))
        if sides[0].shape != sides[1].shape:
            raise ShapeError(
                f"{owner} got an incomplete residual block at {label!r}, with branches of shape "
                f"{sides[0].shape} and {sides[1].shape}: pass all records of the block"
            )
        blocks.append((label, sides[0] + sides[1]))
    for (before, first), (after, second) in pairwise(blocks):
        if first.shape[0] != second.shape[1]:
            raise ShapeError(
                f"{owner} got {before!r} with {first.shape[0]} outputs, followed by {after!r} with "
                f"{second.shape[1]} inputs: pass the records of consecutive layers"
            )
    if not blocks:
        raise ArgumentError(f"{owner} got no records: pass the records of net.transposed_jacobians()")
    return [operator for _, operator in blocks]


def _place(owner: str, record: JacobianRecord) -> list[str]:
    """The numbers of layers and names of branches that lead to a layer, such as ["3", "body", "0"]."""
    if not isinstance(record, JacobianRecord):
        raise ArgumentError(f"{owner} got a {type(record).__name__}: pass net.transposed_jacobians()")
    place = [str(record.layer), *filter(None, record.path.split("."))]
    if record.inner is not None or not {"body", "shortcut"}.issuperset(place[1::2]) or len(place) % 2 == 0:
        raise ArgumentError(
            f"{owner} got {record.label!r}: pass the records of consecutive layers and residual blocks of a "
            "bp.Sequential without recurrent layers"
        )
    return place


def _chain(blocks: list[LinearOperator]) -> LinearOperator:
    """The product of Jacobians, the last one first; halves keep calls of products in products few."""
    half = len(blocks) // 2
    return _chain(blocks[half:]) @ _chain(blocks[:half]) if half else blocks[0]
