"""Singular values of step Jacobians and of their products, and how far gradients reach back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_plain_array
from bppsa_cupy.errors import NonFiniteError, ShapeError
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.records.records import as_chain


def singular_values(records: Sequence[JacobianRecord]) -> np.ndarray:
    """Compute the singular values of the Jacobian of every time step.

    Singular values are the factors by which a step stretches or shrinks gradients and small changes of the
    state.

    Parameters
    ----------
    records : JacobianRecords, or arrays
        The records of T steps of one inner layer and direction, or an array (T, S, S) or (T, B, S, S) or a
        list of T SciPy matrices of Jacobians, whose rows are the state after the step.

    Returns
    -------
    ndarray, (T, B, S) of float64
        The singular values of each step and sample, largest first. After the end of a sample all are 1.

    Raises
    ------
    ArgumentError
        If the records are not consecutive steps of one inner layer and direction.
    ShapeError
        If the records have different or non-square shapes.
    NonFiniteError
        If a Jacobian contains NaN or infinity. The message names the step.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> bp.singular_values(np.array([[[0.0, 2.0], [0.5, 0.0]]])).tolist()
    [[[2.0, 0.5]]]
    """
    chain, _ = as_chain("singular_values", records)
    result = np.empty((chain.steps, chain.batch, chain.size))
    for steps, matrices in chain.blocks():
        result[steps] = np.linalg.svd(matrices, compute_uv=False)
    return result


def log_gradient_norms(records: Sequence[JacobianRecord], gradient: Any = None) -> np.ndarray:
    """Propagate a gradient backward from the last time step, and compute its norm at every step.

    Parameters
    ----------
    records : JacobianRecords, or arrays
        The records of T steps of one inner layer and direction, or Jacobians as in `bp.singular_values`.
    gradient : array, (S,) or (B, S), optional
        The gradient with respect to the state after the last step. By default the result for step t is the
        2-norm of ∂s_last/∂s_t: the largest factor by which a gradient can grow from the last step to step t.

    Returns
    -------
    ndarray, (T, B) of float64
        Natural logarithms of the 2-norms in time order. A norm of 0 gives -inf. The norms are constant over
        the padding of a sample.

    Raises
    ------
    ArgumentError, ShapeError, NonFiniteError
        If the records are not consecutive steps of one inner layer and direction (ArgumentError), a shape is
        wrong (ShapeError), or a value is NaN or infinite (NonFiniteError).

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> norms = bp.log_gradient_norms(np.full((4, 1, 1), 0.5))
    >>> (norms[:, 0] / np.log(2)).round(6).tolist()
    [-3.0, -2.0, -1.0, 0.0]
    """
    owner = "log_gradient_norms"
    chain, _ = as_chain(owner, records)
    shape = chain.batch, chain.size
    if gradient is None:
        product = np.tile(np.eye(chain.size), (chain.batch, 1, 1))
    else:
        array = as_plain_array(owner, "gradient", gradient)
        if array.shape not in (shape, shape[1:]):
            raise ShapeError(
                f"{owner} got a gradient of shape {array.shape}: pass shape {shape[1:]} or {shape} for the "
                f"state of {chain.label}"
            )
        product = np.broadcast_to(array.astype(np.float64), shape)[:, :, None]
        if not np.isfinite(product).all():
            raise NonFiniteError(f"{owner} got a gradient with NaN or infinity: pass finite numbers")
    result = np.empty((chain.steps, chain.batch))
    exponent = np.zeros(chain.batch, np.int64)
    product, exponent = _scaled(product, exponent)
    for position, matrices in chain.walk(back=True):
        result[position] = _log_norm(product, exponent)
        product, exponent = _times(matrices, product, exponent)
    return result


def _times(matrices: np.ndarray, product: np.ndarray, exponent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """matrices · product · 2**exponent, each sample's power of two apart again."""
    scaled, more = _scaled(matrices, exponent)
    return _scaled(scaled @ product, more)


def _scaled(matrices: np.ndarray, exponent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Matrices (B, ., .) with a largest element from 0.5 to 1, and their powers of two on `exponent`."""
    power = np.frexp(np.abs(matrices).max(axis=(1, 2)))[1]
    return np.ldexp(matrices, -power[:, None, None]), exponent + power


def _log_norm(matrices: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """(B,) log of the 2-norms of matrices · 2**exponent."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.linalg.norm(matrices, 2, axis=(1, 2))) + exponent * np.log(2))


def log_singular_values(records: Any) -> np.ndarray:
    """Compute the logarithms of the singular values of the product J_T ⋯ J_1 of step Jacobians.

    Parameters
    ----------
    records : JacobianRecords, or arrays
        The records of T steps of one inner layer and direction, or J_t as in `bp.singular_values`.

    Returns
    -------
    ndarray, (B, S)
        Natural logarithms, largest first. Small singular values are accurate even for condition numbers far
        above 1e16. -inf means that the product maps a direction to 0.

    Raises
    ------
    ArgumentError, ShapeError, NonFiniteError
        If the records are not such steps, have non-square shapes, or contain NaN or infinity.

    Notes
    -----
    The product is stored as Q D U with orthogonal Q, diagonal D in logarithms, and U of moderate size. Each
    step needs one QR decomposition, as in quantum Monte Carlo methods. QR iteration on D U then separates the
    singular values.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> J = np.tile(np.diag([2.0, 0.5]), (100, 1, 1))
    >>> (bp.log_singular_values(J)[0] / np.log(2)).round(6)
    array([ 100., -100.])
    """
    chain, _ = as_chain("log_singular_values", records)
    shape = chain.batch, chain.size
    q, t = (np.tile(np.eye(chain.size), (chain.batch, 1, 1)) for _ in range(2))
    logs = np.zeros(shape)
    for _, transposed in chain.walk():
        for sample in range(chain.batch):
            step = transposed[sample].T @ q[sample]
            q[sample], logs[sample], upper, order = _graded_qr(step, logs[sample])
            t[sample] = upper @ t[sample][order]
    return np.stack([_separate(*pair) for pair in zip(logs, t, strict=True)])


def _graded_qr(matrix: np.ndarray, logs: np.ndarray) -> tuple[np.ndarray, ...]:
    """matrix · exp(logs)[order] = q · exp(new logs) · upper, `upper` of moderate size; and the order."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        order = np.argsort(-(np.log(np.linalg.norm(matrix, axis=0)) + logs), kind="stable")
        logs = logs[order]
        q, r = np.linalg.qr(matrix[:, order])
        diagonal = np.abs(np.diag(r))
        new = logs + np.log(diagonal)
        upper = r * np.exp(np.minimum(logs[None] - new[:, None], 700))
    upper[~np.isfinite(upper)] = 0
    return q, new, np.triu(upper), order


def _separate(logs: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Logarithms of the singular values of exp(logs) · t, by QR iteration on matrices of moderate size."""
    for _ in range(500):
        before = logs
        _, logs, t, _ = _graded_qr(t.T, logs)
        if not np.isfinite(logs).all() or np.abs(logs - before).max() < 1e-14 * max(1, np.abs(logs).max()):
            break
    return -np.sort(-logs)
