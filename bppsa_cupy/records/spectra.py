"""Exponents, vectors, singular values and gradient norms of stored Jacobians, along a chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.records.records import StepChain, as_chain
from bppsa_cupy.system.memory import check_host_memory


def chain_exponents(records: Any, count: int | None = None, burn_in: int = 0) -> np.ndarray:
    """`bp.lyapunov_exponents` of stored Jacobians: (B, count) float64, largest first.

    A sample without any step has 0.
    """
    owner = "lyapunov_exponents"
    chain = as_chain(owner, records)
    ends = chain.lengths
    count = checked_count(owner, count, chain.size)
    if burn_in and (ends <= burn_in).any():
        short = int(np.argmin(ends))
        raise ShapeError(
            f"{owner} got burn_in={burn_in}, but sample {short} has only {ends[short]} steps: pass a smaller "
            "burn_in"
        )
    counted = places(chain) >= burn_in
    stretched = stretches(chain, count)
    stretched[~counted] = 0  # of steps that are left out, -inf among them
    exponents = (stretched / np.maximum(counted.sum(axis=0), 1)[:, None]).sum(axis=0)
    return -np.sort(-exponents, axis=1)


def checked_count(owner: str, count: int | None, size: int) -> int:
    """The number of exponents or vectors, by default S."""
    count = size if count is None else as_integer(owner, "count", count, 1)
    if count > size:
        raise ShapeError(
            f"{owner} got count={count} for a state of {size} elements: pass a count of at most {size}"
        )
    return count


def stretches(chain: StepChain, count: int) -> np.ndarray:
    """(T, B, count) log |r_ii| of each step's QR decomposition, by time."""
    result = np.empty((chain.steps, chain.batch, count))
    basis = np.tile(np.eye(chain.size, count), (chain.batch, 1, 1))
    for position, transposed in chain.walk():
        basis, triangle = np.linalg.qr(transposed.swapaxes(1, 2) @ basis)
        with np.errstate(divide="ignore"):
            np.log(np.abs(np.diagonal(triangle, axis1=1, axis2=2)), out=result[position])
    return result


def places(chain: StepChain) -> np.ndarray:
    """(T, B) int64, by time: the place of each step in its sample's walk, from 0; -1 for padding."""
    times = np.arange(chain.steps)[:, None]
    return np.where(chain.live, chain.lengths - 1 - times if chain.reverse else times, -1)


# ---- covariant Lyapunov vectors ----


@dataclass(frozen=True, eq=False)
class LyapunovVectors:
    """QR decompositions of step Jacobians: J_t Q_{t-1} = Q_t R_t. Created by `bp.lyapunov_vectors`.

    Parameters
    ----------
    q : ndarray, (T, B, S, k)
        Q_t for T steps, B samples and states of S elements. The k columns are the orthonormal vectors after
        step t.
    r : ndarray, (T, B, k, k)
        R_t, upper triangular.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> vectors = bp.lyapunov_vectors(np.tile(np.diag([2.0, 0.5]), (100, 1, 1)))
    >>> vectors, vectors.stretches.shape
    (LyapunovVectors: 2 of 2 per step, 100 steps, 1 samples, (100, 1, 2))
    """

    q: np.ndarray
    r: np.ndarray

    def __repr__(self) -> str:
        steps, batch, size, count = self.q.shape
        return f"LyapunovVectors: {count} of {size} per step, {steps} steps, {batch} samples"

    @property
    def stretches(self) -> np.ndarray:
        """The growth rates of every step, (T, B, k): natural logarithms log |r_ii|."""
        with np.errstate(divide="ignore"):
            return np.log(np.abs(np.diagonal(self.r, axis1=2, axis2=3)))

    @property
    def exponents(self) -> np.ndarray:
        """The Lyapunov exponents, (B, k): the averages of `stretches` over the steps."""
        return self.stretches.mean(axis=0)

    def finite_time(self, steps: int) -> np.ndarray:
        """Return the exponents of consecutive windows of `steps` steps, (T // steps, B, k).

        A histogram over the windows shows the distribution of finite-time exponents.
        """
        steps = as_integer("finite_time", "steps", steps, 1)
        count = len(self.r) // steps
        if not count:
            raise ShapeError(
                f"finite_time got steps={steps}, but there are only {len(self.r)} steps: pass fewer steps"
            )
        stretches = self.stretches[: count * steps]
        return stretches.reshape(count, steps, *stretches.shape[1:]).mean(axis=1)

    def covariant(self, settle: int = 0) -> np.ndarray:
        """Return the covariant Lyapunov vectors after each step, (T - settle, B, S, k), of norm 1.

        Parameters
        ----------
        settle : int, default: 0
            Number of steps to drop at the end, where the backward iteration has not converged.

        Raises
        ------
        ShapeError
            If `settle` leaves no step, or a Jacobian maps a direction to 0.

        Notes
        -----
        The vectors are V_t = Q_t C_t. The columns of C_{t-1} = R_t⁻¹ C_t converge in the backward direction
        (Ginelli et al. 2007). J_t maps vector i after step t - 1 to a multiple of vector i after step t.

        The first vectors have not converged either. Drop these vectors by slicing, for example
        ``covariant(settle=100)[100:]``.

        Examples
        --------
        >>> import numpy as np, bppsa_cupy as bp
        >>> vectors = bp.lyapunov_vectors(np.random.default_rng(0).standard_normal((300, 5, 5)))
        >>> vectors.covariant(settle=100)[100:].shape
        (100, 1, 5, 5)
        """
        settle = as_integer("covariant", "settle", settle, 0)
        if settle >= len(self.r):
            raise ShapeError(
                f"covariant got settle={settle}, but there are only {len(self.r)} steps: pass a smaller "
                "settle"
            )
        if not np.diagonal(self.r, axis1=2, axis2=3).all():
            raise ShapeError(
                "covariant vectors need invertible matrices R, but a Jacobian maps a direction to 0: pass a "
                "smaller count to lyapunov_vectors"
            )
        steps, batch, size, count = self.q.shape
        result = np.empty((steps - settle, batch, size, count))
        c = np.tile(np.eye(count), (batch, 1, 1))
        for t in range(steps - 1, -1, -1):
            if t < len(result):
                result[t] = self.q[t] @ c
            c = np.linalg.solve(self.r[t], c)
            c /= np.linalg.norm(c, axis=1, keepdims=True)
        return result


def lyapunov_vectors(records: Any, *, count: int | None = None) -> LyapunovVectors:
    """Decompose stored Jacobians by QR, for finite-time exponents and covariant Lyapunov vectors.

    Parameters
    ----------
    records : JacobianRecords, or arrays
        The records of the T steps of one inner layer and direction, or an array (T, S, S) or (T, B, S, S) or
        a list of T SciPy matrices of J_t, whose rows are the state after step t.
    count : int, default: S
        The number of vectors k.

    Returns
    -------
    LyapunovVectors
        Q and R of every step. They occupy T B S k and T B k² values of 8 bytes.

    Raises
    ------
    ShapeError
        If a sample has padding, `count` is out of range, or the records have different or non-square shapes.
    ArgumentError
        If the records are not consecutive steps of one inner layer and direction.
    DeviceError, NonFiniteError
        If there is too little memory, or a Jacobian contains NaN or infinity.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> J = np.random.default_rng(0).standard_normal((300, 5, 5))
    >>> vectors = bp.lyapunov_vectors(J)
    >>> vectors.covariant(settle=100).shape, vectors.finite_time(50).shape
    ((200, 1, 5, 5), (6, 1, 5))
    """
    chain = as_chain("lyapunov_vectors", records)
    count = checked_count("lyapunov_vectors", count, chain.size)
    if not chain.live.all():
        shortest = chain.lengths.min()
        raise ShapeError(
            f"lyapunov_vectors got a sample of {shortest} steps: pass samples with all {chain.steps}"
        )
    numbers = chain.steps * chain.batch * count * (chain.size + count)
    check_host_memory(8 * numbers, f"Lyapunov vectors of {chain.label}")
    q = np.empty((chain.steps, chain.batch, chain.size, count))
    r = np.empty((chain.steps, chain.batch, count, count))
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((chain.size, count)))[0]
    for step, (_, transposed) in enumerate(chain.walk()):
        basis, r[step] = np.linalg.qr(transposed.swapaxes(1, 2) @ basis)
        q[step] = basis
    return LyapunovVectors(q, r)


# ---- singular values of steps and of their products, and how far gradients reach back ----


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
    chain = as_chain("singular_values", records)
    result = np.empty((chain.steps, chain.batch, chain.size))
    for steps, matrices in chain.blocks():
        result[steps] = np.linalg.svd(matrices, compute_uv=False)
    return result


def log_gradient_norms(records: Sequence[JacobianRecord]) -> np.ndarray:
    """Compute how much a gradient can grow on its way from the last time step back to every step.

    Parameters
    ----------
    records : JacobianRecords, or arrays
        The records of T steps of one inner layer and direction, or Jacobians as in `bp.singular_values`.

    Returns
    -------
    ndarray, (T, B) of float64
        Natural logarithms of the 2-norms of ∂s_last/∂s_t in time order: the largest factors by which a
        gradient can grow from the last step to step t. A norm of 0 gives -inf. The norms are constant over
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
    chain = as_chain("log_gradient_norms", records)
    result = np.empty((chain.steps, chain.batch))
    product = np.tile(np.eye(chain.size), (chain.batch, 1, 1))
    exponent = np.zeros(chain.batch, np.int64)
    for position, matrices in chain.walk(back=True):
        with np.errstate(divide="ignore"):
            result[position] = np.log(np.linalg.norm(product, 2, axis=(1, 2))) + exponent * np.log(2)
        scaled, exponent = _scaled(matrices, exponent)
        product, exponent = _scaled(scaled @ product, exponent)
    return result


def _scaled(matrices: np.ndarray, exponent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Matrices (B, ., .) with a largest element from 0.5 to 1, and their powers of two on `exponent`."""
    power = np.frexp(np.abs(matrices).max(axis=(1, 2)))[1]
    return np.ldexp(matrices, -power[:, None, None]), exponent + power


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
    chain = as_chain("log_singular_values", records)
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
