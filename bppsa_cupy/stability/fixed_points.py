"""Fixed points and slow points of recurrent systems."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_integer, as_positive
from bppsa_cupy.errors import NonFiniteError, ShapeError
from bppsa_cupy.stability.exponents import flow_of, on_host


@dataclass(frozen=True, eq=False)
class FixedPoints:
    """Fixed points and slow points that `bp.fixed_points` has found, sorted by residual.

    Parameters
    ----------
    points : ndarray, (K, S)
        The states h.
    residual : ndarray, (K,)
        The 2-norm of F(h) - h for the step function F.
    is_fixed : ndarray of bool, (K,)
        Whether the residual is at most the tolerance. The other points are slow points: local minima of the
        residual, or points where `max_iterations` ended the search.
    jacobians : ndarray, (K, S, S)
        ∂F/∂h at the points.
    counts : ndarray of int, (K,)
        The number of candidates that ended at each point.
    inputs : ndarray, (K, F) or None
        The input of each point.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> def step(h):
    ...     return h / 2, np.eye(1) / 2
    >>> points = bp.fixed_points(step, [[1.0]])
    >>> points, points.eigenvalues.real.tolist()
    (FixedPoints: 1 fixed points (1 stable), 0 slow points, [[0.5]])
    """

    points: np.ndarray
    residual: np.ndarray
    is_fixed: np.ndarray
    jacobians: np.ndarray
    counts: np.ndarray
    inputs: np.ndarray | None

    def __repr__(self) -> str:
        fixed, stable = self.is_fixed.sum(), (self.is_fixed & self.is_stable).sum()
        return f"FixedPoints: {fixed} fixed points ({stable} stable), {len(self) - fixed} slow points"

    def __len__(self) -> int:
        return len(self.points)

    @cached_property
    def _modes(self) -> tuple[np.ndarray, np.ndarray]:
        values, vectors = np.linalg.eig(self.jacobians)
        order = np.argsort(-np.abs(values), axis=1, kind="stable")
        return np.take_along_axis(values, order, 1), np.take_along_axis(vectors, order[:, None], 2)

    @property
    def eigenvalues(self) -> np.ndarray:
        """The eigenvalues of the Jacobians, (K, S), largest absolute value first."""
        return self._modes[0]

    @property
    def eigenvectors(self) -> np.ndarray:
        """The eigenvectors of the Jacobians, (K, S, S), one column per eigenvalue."""
        return self._modes[1]

    @property
    def is_stable(self) -> np.ndarray:
        """Whether all eigenvalues of a point are inside the unit circle, (K,)."""
        return np.abs(self.eigenvalues[:, 0]) < 1


def fixed_points(
    source: Any,
    candidates: Any,
    *,
    inputs: Any = None,
    tolerance: float = 1e-9,
    distance: float = 1e-4,
    max_iterations: int = 200,
) -> FixedPoints:
    """Find fixed points h = F(x, h) of a system, and slow points where ‖F(x, h) - h‖ is minimal.

    Parameters
    ----------
    source : network or callable
        A `bp.Sequential` that begins with a recurrent layer, a recurrent PyTorch module, or a step function
        ``step(x, h)`` that gets one state (S,). In PyTorch and JAX it returns the next state, in NumPy the
        pair of next state and Jacobian (S, S): see `bp.lyapunov_exponents`.
    candidates : array, (M, S)
        Initial states of the search, for example states that the trained network visits, in the array type of
        the step function.
    inputs : array, (F,) or (M, F), optional
        The constant input, or one input per candidate. Without inputs, a step function is called as
        ``step(h)``, and a network gets zeros.
    tolerance : float, default: 1e-9
        The largest residual ‖F(h) - h‖ of a fixed point. Use 1e-5 for step functions in float32.
    distance : float, default: 1e-4
        If two points with the same input are closer than this, only the one of smaller residual is kept.
    max_iterations : int, default: 200
        The maximum number of iterations per candidate.

    Returns
    -------
    FixedPoints
        Points without duplicates, with residuals, Jacobians and eigenvalues.

    Raises
    ------
    ShapeError
        If an array has the wrong shape, or `max_iterations` is not a positive integer.
    ArgumentError
        If `tolerance` or `distance` is not a positive number.
    NonFiniteError
        If the step is not finite at a candidate.

    Notes
    -----
    The Levenberg–Marquardt method minimises ‖F(h) - h‖² for all candidates at once. Near a fixed point it
    approaches Newton's method. Elsewhere it ends at a slow point (Sussillo & Barak 2013).

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> def step(h):
    ...     h = np.tanh(2 * h)
    ...     return h, 2 * np.diag(1 - h**2)
    >>> result = bp.fixed_points(step, np.random.default_rng(0).uniform(-1, 1, (50, 1)))
    >>> np.sort(result.points.ravel()).round(4) + 0.0
    array([-0.9575,  0.    ,  0.9575])
    """
    owner = "fixed_points"
    max_iterations = as_integer(owner, "max_iterations", max_iterations, 1)
    tolerance, distance = as_positive(owner, "tolerance", tolerance), as_positive(owner, "distance", distance)
    if len(getattr(candidates, "shape", ())) != 2 or not len(candidates):
        candidates = np.array(candidates, np.float64)
        if candidates.ndim != 2 or not candidates.size:
            raise ShapeError(f"{owner} got candidates of shape {candidates.shape}: pass shape (M, S)")
    flow = flow_of(source, candidates[0])
    h = np.array(on_host(candidates), np.float64)
    x = None
    if inputs is not None:
        x = np.array(on_host(inputs))
        if x.ndim not in (1, 2) or (x.ndim == 2 and len(x) != len(h)):
            raise ShapeError(f"{owner} got inputs of shape {x.shape}: pass shape (F,) or ({len(h)}, F)")
        x = np.broadcast_to(x, (len(h), x.shape[-1]))
    h, residual, jacobians = _minimize(flow, x, h, tolerance, max_iterations)
    order = np.argsort(residual, kind="stable")
    distinct: list[int] = []
    counts: list[int] = []
    for place in order:
        near = np.linalg.norm(h[distinct] - h[place], axis=1) < distance
        if x is not None:
            near &= (x[distinct] == x[place]).all(axis=1)
        if near.any():
            counts[int(np.argmax(near))] += 1
        else:
            distinct.append(place)
            counts.append(1)
    return FixedPoints(
        h[distinct], residual[distinct], residual[distinct] <= tolerance, jacobians[distinct],
        np.array(counts), None if x is None else x[distinct],
    )  # fmt: skip


def _minimize(
    flow: Any, x: np.ndarray | None, h: np.ndarray, tolerance: float, max_iterations: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Minimise ‖F(h) - h‖ from every row of h: the states, residuals and Jacobians."""
    eye = np.eye(h.shape[1])

    def evaluate(rows: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        after, jacobian = flow.linearize(None if x is None else x[rows], states)
        difference = after - states
        return difference, np.linalg.norm(difference, axis=1), jacobian

    rows = np.arange(len(h))
    difference, residual, jacobians = map(np.array, evaluate(rows, h))
    if not np.isfinite(residual).all():
        raise NonFiniteError(
            f"the step returns NaN or infinity for candidate {int(np.argmin(np.isfinite(residual)))}: remove "
            "this candidate"
        )
    damping = np.full(len(h), 1e-2)
    for _ in range(max_iterations):
        rows = rows[(residual[rows] > tolerance) & (damping[rows] < 1e12)]
        if not len(rows):
            break
        a = jacobians[rows] - eye
        gradient = np.einsum("mij,mi->mj", a, difference[rows])
        scale = np.minimum(1, residual[rows])
        matrix = a.swapaxes(1, 2) @ a + (damping[rows] * scale)[:, None, None] * eye
        moves = np.linalg.solve(matrix, gradient[:, :, None])
        states = h[rows] - moves[:, :, 0]
        new, size, jacobian = evaluate(rows, states)
        square = residual[rows] ** 2
        linear = np.sum((difference[rows] - (a @ moves)[:, :, 0]) ** 2, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            gain = np.nan_to_num((square - size**2) / (square - linear), nan=-1.0)
        better = gain > 1e-3
        taken = rows[better]
        h[taken], difference[taken], residual[taken] = states[better], new[better], size[better]
        jacobians[taken] = jacobian[better]
        damping[rows] *= np.where(gain > 0.75, 0.1, np.where(gain < 0.25, 10, 1))
    return h, residual, jacobians
