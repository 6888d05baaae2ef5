"""The paper's max-pooling Jacobian of one input (algorithms 8 to 10). For analysis only: the pattern
depends on the input, so no plan can be made from it (`max_pool2d` has the guaranteed pattern)."""

from __future__ import annotations

import numpy as np

from bppsa_cupy.arguments import as_instance, as_integers
from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.geometry import Pool2dGeometry


def exact_max_pool2d(geometry: Pool2dGeometry, pool_indices: np.ndarray) -> tuple[Pattern, np.ndarray]:
    """Return the nonzeros of the transposed Jacobian of max-pooling without overlap, for one sample.

    Parameters
    ----------
    geometry : Pool2dGeometry
        A geometry from `MaxPool2d.geometry`. The stride must equal the window size.
    pool_indices : array of int, (channels, *out_size)
        Position of each window's maximum in its flattened input plane: row times width, plus column.

    Returns
    -------
    pattern : Pattern
        The pattern (inputs, outputs), with one entry per window.
    data : array, (nnz,) of float64
        Ones.

    Raises
    ------
    ShapeError
        If stride and window size differ, or `pool_indices` has a wrong shape or a position outside the plane.
    ArgumentError
        If `geometry` is not a Pool2dGeometry.

    Notes
    -----
    The algorithm of Wang et al. 2020 assumes that each input is the maximum of at most one window.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> pattern, data = bp.exact_max_pool2d(bp.MaxPool2d(2).geometry((1, 2, 2)), [[[3]]])
    >>> pattern.shape, pattern.indptr.tolist(), data.tolist()
    ((4, 1), [0, 0, 0, 0, 1], [1.0])
    """
    takes = "a Pool2dGeometry, such as MaxPool2d(2).geometry(input_shape)"
    as_instance("exact_max_pool2d", "geometry", geometry, Pool2dGeometry, takes)
    if geometry.stride != geometry.kernel_size:
        raise ShapeError(
            f"exact_max_pool2d got windows of size {geometry.kernel_size} with stride {geometry.stride}: "
            "use a stride equal to the window size"
        )
    shape = (geometry.channels, *geometry.out_size)
    pool_indices = as_integers("exact_max_pool2d", "pool_indices", pool_indices)
    if pool_indices.shape != shape:
        raise ShapeError(f"pool_indices has shape {pool_indices.shape}: pass {shape}")
    in_plane, out_plane = int(np.prod(geometry.in_size)), int(np.prod(geometry.out_size))
    outside = pool_indices[(pool_indices < 0) | (pool_indices >= in_plane)]
    if outside.size:
        raise ShapeError(f"pool_indices contains {outside[0]}: pass positions from 0 to {in_plane - 1}")
    mapping = np.full(geometry.channels * in_plane, -1)
    plane = np.repeat(np.arange(geometry.channels) * in_plane, out_plane)
    mapping[plane + pool_indices.reshape(-1)] = np.arange(geometry.channels * out_plane)
    pooled = mapping >= 0
    indptr = np.concatenate([[0], np.cumsum(pooled)])
    pattern = Pattern((mapping.size, geometry.channels * out_plane), indptr, mapping[pooled])
    return pattern, np.ones(pattern.nnz)
