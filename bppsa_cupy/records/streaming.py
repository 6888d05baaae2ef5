"""Lyapunov exponents along a trajectory: state and tangent vectors advance together."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack
from tqdm import tqdm

from bppsa_cupy.errors import ArgumentError, NonFiniteError, ShapeError

#: Rows of a history at most, and the numbers that it holds at most.
ROWS, NUMBERS = 10_000, 1 << 24
#: Blocks whose averages give the standard error.
BLOCKS = 32


class Flow(abc.ABC):
    """A dynamical system h_t = F(x_t, h_{t-1}) that pushes tangent vectors along its trajectory.

    Attributes
    ----------
    size : int
        S, the elements of a state.
    batch : int or None
        B, or None for one state without a batch axis.
    state : object
        The present state, as the caller passes h0.
    tangent : object
        (B, count, S) or (count, S), the tangent vectors as rows, in the array type of the system.
    """

    size: int
    batch: int | None
    state: Any
    tangent: Any
    #: Steps that one call of `advance` takes at most.
    chunk = 256

    @property
    def shape(self) -> tuple[int, ...]:
        """The batch axis, if there is one."""
        return () if self.batch is None else (self.batch,)

    def begin(self, tangent: np.ndarray) -> None:
        """Set the tangent vectors."""
        self.tangent = tangent

    @abc.abstractmethod
    def advance(self, inputs: Any, steps: int, every: int) -> np.ndarray:
        """Advance by some steps, with a QR decomposition after every `every` steps and after the last one.

        Returns the logarithms (decompositions, B, count).
        """

    @abc.abstractmethod
    def linearize(self, x: Any, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """F and its Jacobian at points (M, S) with inputs (M, F) or None: (M, S) and (M, S, S)."""

    def stack(self, inputs: list[Any]) -> Any:
        """The inputs of several steps as `advance` takes them."""
        return inputs


def diagonals(
    push: Callable[[Any], None], orthonormalize: Callable[[], Any], inputs: Any, steps: int, every: int
) -> list[Any]:
    """Loop of `Flow.advance` by a function that pushes by one step and one that returns r_ii."""
    result = []
    for step in range(steps):
        push(None if inputs is None else inputs[step])
        if (step + 1) % every == 0 or step + 1 == steps:
            result.append(orthonormalize())
    return result


def orthonormalize_rows(rows: np.ndarray) -> Any:
    """Make C-contiguous rows (..., count, S) of float64 orthonormal in place.

    Returns r_ii (..., count), a number for a single row.
    """
    count, size = rows.shape[-2:]
    if rows.size == size:
        row = rows.reshape(size)
        norm = blas.dnrm2(row)
        if norm:
            row /= norm
        else:
            row[0] = 1
        return norm
    diagonal = np.empty(rows.shape[:-1])
    for vectors, scales in zip(rows.reshape(-1, count, size), diagonal.reshape(-1, count), strict=True):
        if count == 1:
            scales[0] = orthonormalize_rows(vectors)
            continue
        columns = vectors.T
        factors, reflectors, _, _ = lapack.dgeqrf(columns, lwork=64 * count, overwrite_a=1)
        scales[:] = factors.diagonal()
        result = lapack.dorgqr(factors[:, :count], reflectors, lwork=64 * count, overwrite_a=1)[0]
        if not np.shares_memory(result, rows):
            columns[...] = result
    return diagonal


class HostFlow(Flow):
    """A flow whose state, of `size` elements if given, and tangent vectors are NumPy arrays."""

    def __init__(self, h0: Any, size: int | None = None) -> None:
        self.state = np.array(h0, np.float64)
        shape = self.state.shape
        if len(shape) not in (1, 2) or not self.state.size or shape[-1] != (size or shape[-1]):
            S = size or "S"
            raise ShapeError(f"h0 has shape {shape}: pass ({S},), or (B, {S}) for a batch")
        self.size, self.batch = shape[-1], shape[0] if len(shape) == 2 else None

    @abc.abstractmethod
    def push(self, x: Any) -> None:
        """Advance the state and the tangent vectors by one step."""

    def advance(self, inputs: Any, steps: int, every: int) -> np.ndarray:
        stretched = diagonals(self.push, lambda: orthonormalize_rows(self.tangent), inputs, steps, every)
        with np.errstate(divide="ignore"):
            return np.log(np.abs(stretched)).reshape(-1, *self.tangent.shape[:-1])


class StepFlow(HostFlow):
    """A step that is written in NumPy and returns the next state and its Jacobian."""

    def __init__(self, step: Any, h0: Any) -> None:
        super().__init__(h0)
        self._step = step

    def evaluate(self, x: Any, h: np.ndarray) -> tuple[np.ndarray, Any]:
        """The next state and the Jacobian of the step: an array, a sparse matrix or a function."""
        try:
            result = self._step(h) if x is None else self._step(x, h)
        except TypeError as error:
            raise ArgumentError(
                f"the step raises an error for a NumPy state ({error}): pass h0 in the array type of the "
                "step, for example as a tensor"
            ) from error
        if not isinstance(result, tuple) or len(result) != 2 or np.shape(result[0]) != h.shape:
            raise ShapeError(
                f"the step returned {type(result).__name__} for a state of shape {h.shape}: return (next "
                "state, Jacobian) from a NumPy step, where the Jacobian is an array, a SciPy matrix or a "
                "function Q -> J Q, and the next state has the same shape"
            )
        return np.asarray(result[0], np.float64), result[1]

    def push(self, x: Any) -> None:
        self.state, jacobian = self.evaluate(x, self.state)
        self.tangent = multiply(jacobian, self.tangent)

    def linearize(self, x: Any, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        eye = np.eye(self.size)
        pairs = [self.evaluate(None if x is None else x[m], h) for m, h in enumerate(points)]
        jacobians = [multiply(jacobian, eye).T for _, jacobian in pairs]
        return np.stack([after for after, _ in pairs]), np.stack(jacobians)


def multiply(jacobian: Any, rows: np.ndarray) -> np.ndarray:
    """J Q for tangent vectors as rows (..., count, S): rows again, C-contiguous, that share no input."""
    vectors = rows.swapaxes(-1, -2)
    product = np.asarray(jacobian(vectors) if callable(jacobian) else jacobian @ vectors)
    if product.shape != vectors.shape:
        raise ShapeError(
            f"the Jacobian of the step maps tangent vectors of shape {vectors.shape} to shape "
            f"{product.shape}: return a Jacobian that keeps the shape"
        )
    return np.ascontiguousarray(product.swapaxes(-1, -2), np.float64)


@dataclass(frozen=True, eq=False)
class LyapunovSpectrum:
    """Lyapunov exponents along a trajectory: the result of ``bp.lyapunov_exponents(step, x, h0)``.

    Parameters
    ----------
    exponents : ndarray, (k,) or (B, k)
        The exponents per step, as natural logarithms, largest first. -inf means that a step maps a direction
        to 0.
    stretches : ndarray, (rows, k) or (rows, B, k)
        The exponents of consecutive blocks of steps, one row per block. There are at most 10,000 blocks.
    ends : ndarray of int, (rows,)
        The number of steps between the end of the burn-in and the end of each block.
    size : int
        S, the number of elements of a state.
    state : array
        The state after the last step. Pass it as `h0` to continue.
    basis : ndarray, (S, k) or (B, S, k)
        The tangent vectors after the last step, orthonormal. Pass it as `basis` to continue.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> def logistic(h):
    ...     return 4 * h * (1 - h), np.diag(4 - 8 * h)
    >>> bp.lyapunov_exponents(logistic, h0=[0.3], steps=5_000)
    LyapunovSpectrum: 1 exponents, largest 0.693 ± 0.001
    """

    exponents: np.ndarray
    stretches: np.ndarray
    ends: np.ndarray
    size: int
    state: Any
    basis: np.ndarray

    def __repr__(self) -> str:
        shape, place = " × ".join(map(str, self.exponents.shape)), int(np.argmax(self.exponents))
        largest, error = self.exponents.flat[place], self.standard_error.flat[place]
        return f"LyapunovSpectrum: {shape} exponents, largest {largest:.3g} ± {error:.1g}"

    @property
    def steps(self) -> int:
        """The number of steps after the burn-in."""
        return int(self.ends[-1])

    @cached_property
    def history(self) -> np.ndarray:
        """The averages of the exponents over the steps up to each of `ends`, in the shape of `stretches`."""
        widths = np.diff(self.ends, prepend=0).reshape(-1, *(1,) * self.exponents.ndim)
        return np.cumsum(self.stretches * widths, axis=0) / np.cumsum(widths, axis=0)

    @cached_property
    def standard_error(self) -> np.ndarray:
        """The standard error of `exponents`, computed from the averages of at most 32 consecutive parts.

        It is valid if the parts are longer than the correlation time of the trajectory. NaN for one block.
        """
        parts = np.array_split(self.stretches, min(BLOCKS, max(1, len(self.stretches))))
        means = np.stack([part.mean(axis=0) for part in parts])
        if len(means) < 2:
            return np.full(self.exponents.shape, np.nan)
        with np.errstate(invalid="ignore"):
            return means.std(axis=0, ddof=1) / np.sqrt(len(means))

    @property
    def kaplan_yorke_dimension(self) -> Any:
        """The Kaplan-Yorke dimension, a number or (B,): j + (λ_1 + … + λ_j) / |λ_{j+1}|.

        j is the largest number for which the sum of the first j exponents is not negative. The dimension is S
        if the sum of all S exponents is not negative. It is NaN if too few exponents are known to find j.
        """
        sums = np.cumsum(self.exponents, axis=-1)
        negative = sums < 0
        place = np.argmax(negative, axis=-1)[..., None]
        before = np.where(place > 0, np.take_along_axis(sums, np.maximum(place - 1, 0), -1), 0.0)
        value = place + before / -np.take_along_axis(self.exponents, place, -1)
        rest = self.size if self.exponents.shape[-1] == self.size else np.nan
        return np.where(negative.any(axis=-1), value[..., 0], rest)[()]

    @property
    def entropy(self) -> Any:
        """The sum of the positive exponents, a number or (B,): an upper bound of the entropy rate in nats.

        It is NaN if fewer than S exponents were computed and all of them are positive.
        """
        total = np.maximum(self.exponents, 0).sum(axis=-1)
        if self.exponents.shape[-1] < self.size:
            total = np.where(self.exponents[..., -1] > 0, np.nan, total)
        return total[()]

    def plot(self, axes: Any = None) -> Any:
        """Plot the running averages as `bp.plot_history` does, and return the Matplotlib axes."""
        from bppsa_cupy.records.plots import plot_history

        return plot_history(self, axes=axes)


class History:
    """Sums of logarithms in blocks of equal width, which doubles where there would be too many."""

    def __init__(self, shape: tuple[int, ...], every: int) -> None:
        self.rows = int(np.clip(NUMBERS // max(1, int(np.prod(shape))), 2 * BLOCKS, ROWS)) // 2 * 2
        self.sums, self.every = np.zeros((self.rows, *shape)), every
        self.width, self.count, self.steps = 1, 0, 0

    def add(self, logs: np.ndarray, steps: int) -> None:
        """Add the logarithms of consecutive QR decompositions, made in so many steps."""
        while self.count + len(logs) > self.rows * self.width:
            self.sums[: self.rows // 2] = self.sums[::2] + self.sums[1::2]
            self.sums[self.rows // 2 :] = 0
            self.width *= 2
        rows = (self.count + np.arange(len(logs))) // self.width
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        self.sums[rows[starts]] += np.add.reduceat(logs, starts, axis=0)
        self.count, self.steps = self.count + len(logs), self.steps + steps

    def spectrum(self, flow: Flow) -> LyapunovSpectrum:
        """The result, each sample's exponents in falling order."""
        sums = self.sums[: -(-self.count // self.width)]
        ends = np.minimum(np.arange(1, len(sums) + 1) * self.width * self.every, self.steps)
        exponents = sums.sum(axis=0) / self.steps
        order = np.argsort(-exponents, axis=-1, kind="stable")
        widths = np.diff(ends, prepend=0).reshape(-1, *(1,) * exponents.ndim)
        stretches = np.take_along_axis(sums, order[None], -1) / widths
        exponents = np.take_along_axis(exponents, order, -1)
        basis = np.array(flow.tangent, np.float64).swapaxes(-1, -2)
        return LyapunovSpectrum(exponents, stretches, ends, flow.size, flow.state, basis)


def stream(
    flow: Flow,
    inputs: Iterable[Any] | None,
    steps: int | None,
    *,
    count: int,
    burn_in: int,
    every: int,
    basis: Any = None,
    progress: bool = False,
) -> LyapunovSpectrum:
    """Run a flow over inputs, or `steps` steps without any, and average the logarithms."""
    shape = *flow.shape, count
    flow.begin(first_tangent(flow, count, basis))
    history = History(shape, every)
    source = None if inputs is None else iter(inputs)
    done, chunk = 0, max(1, flow.chunk // every) * every
    with tqdm(total=steps, unit=" steps", disable=not progress) as bar:
        while steps is None or done < steps:
            length = chunk if steps is None else min(chunk, steps - done)
            if done < burn_in:
                length = min(length, burn_in - done)
            items = None if source is None else list(islice(source, length))
            if items is not None:
                length = len(items)
            if not length:
                break
            with np.errstate(over="ignore", invalid="ignore"):
                logs = flow.advance(None if items is None else flow.stack(items), length, every)
            if not (logs < np.inf).all():
                raise NonFiniteError(
                    f"tangent vectors are not finite between steps {done} and {done + length}: reduce "
                    "`every`, or check whether the trajectory diverges"
                )
            done += length
            if done > burn_in:
                history.add(logs, length)
            bar.update(length)
    if not history.steps:
        raise ShapeError(f"burn_in={burn_in} leaves no step of {done}: pass a smaller burn_in, or more steps")
    return history.spectrum(flow)


def first_tangent(flow: Flow, count: int, basis: Any) -> np.ndarray:
    """The first tangent vectors as rows: those of the caller, or random orthonormal ones, always the same."""
    if basis is None:
        rows = np.random.default_rng(0).standard_normal((count, flow.size))
        orthonormalize_rows(rows)
        return np.ascontiguousarray(np.broadcast_to(rows, (*flow.shape, count, flow.size)))
    rows = np.array(basis, np.float64)
    if rows.shape != (*flow.shape, flow.size, count):
        raise ShapeError(f"basis has shape {rows.shape}: pass shape {(*flow.shape, flow.size, count)}")
    return np.ascontiguousarray(rows.swapaxes(-1, -2))
