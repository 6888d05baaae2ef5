"""Lyapunov exponents and vectors of stored Jacobians, by QR decompositions along a chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.records.chain import StepChain
from bppsa_cupy.records.records import as_chain
from bppsa_cupy.system.memory import check_host_memory


def chain_exponents(
    records: Any, count: int | None = None, burn_in: int = 0, lengths: Any = None
) -> np.ndarray:
    """`bp.lyapunov_exponents` of stored Jacobians: (B, count) float64, largest first.

    A sample without any step has 0.
    """
    owner = "lyapunov_exponents"
    chain, ends = as_chain(owner, records, lengths)
    count = checked_count(owner, count, chain.size)
    if burn_in and (ends <= burn_in).any():
        short = int(np.argmin(ends))
        raise ShapeError(
            f"{owner} got burn_in={burn_in}, but sample {short} has only {ends[short]} steps: pass a smaller "
            "burn_in"
        )
    counted = places(chain, ends) >= burn_in
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


def places(chain: StepChain, lengths: np.ndarray) -> np.ndarray:
    """(T, B) int64, by time: the place of each step in its sample's walk, from 0; -1 for padding."""
    times = np.arange(chain.steps)[:, None]
    order = lengths - 1 - times if chain.reverse else times
    return np.where(times < lengths, order, -1)


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
    chain, lengths = as_chain("lyapunov_vectors", records)
    count = checked_count("lyapunov_vectors", count, chain.size)
    if (lengths < chain.steps).any():
        raise ShapeError(
            f"lyapunov_vectors got a sample of {lengths.min()} steps: pass samples with all {chain.steps}"
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
