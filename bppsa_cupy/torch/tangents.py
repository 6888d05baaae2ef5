"""Tangent vectors along the trajectory of a step that is written in PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.records.spectra import checked_count
from bppsa_cupy.records.streaming import Flow, diagonals, first_tangent
from bppsa_cupy.torch import checks


class TorchFlow(Flow):
    """h_t = step(x_t, h_{t-1}) for a tensor (S,) or (B, S), or a tuple of them.

    Attributes
    ----------
    flat
        The present state, the tensors of a tuple side by side.
    """

    def __init__(self, step: Callable[..., Any], h0: Any) -> None:
        with warnings.catch_warnings():  # PyTorch warns of itself when its first jvp loads decompositions
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.func.jvp(torch.neg, (torch.zeros(1),), (torch.zeros(1),))
        self._step, self._is_tuple = step, isinstance(h0, (tuple, list))
        states = tuple(h0) if self._is_tuple else (h0,)
        first = states[0]
        if not all(isinstance(h, torch.Tensor) for h in states):
            raise ArgumentError(f"h0 is {type(first).__name__}: pass a tensor, or a tuple of tensors")
        kinds = {(h.dim(), h.dtype) for h in states}
        if len(kinds) != 1 or first.dim() not in (1, 2) or first.dtype not in checks.DTYPES:
            shapes = ", ".join(f"{h.dtype} {tuple(h.shape)}" for h in states)
            raise ShapeError(
                f"h0 has {shapes}: pass float32 or float64 tensors of shape (S,), or (B, S) for a batch"
            )
        sizes = [h.shape[-1] for h in states]
        self._parts = [(sum(sizes[:number]), size) for number, size in enumerate(sizes)]
        self.size, self.batch = sum(sizes), len(first) if first.dim() == 2 else None
        self.flat = torch.cat(states, -1) if self._is_tuple else first

    @property
    def state(self) -> Any:
        return self._states_of(self.flat)

    def _states_of(self, flat: torch.Tensor) -> Any:
        """A state as the step takes it. It may write to the parts, unlike to those of `split`."""
        return tuple(flat.narrow(-1, *part) for part in self._parts) if self._is_tuple else flat

    def begin(self, tangent: np.ndarray) -> None:
        rows = np.array(np.moveaxis(tangent, -2, 0), order="C")
        self._rows = torch.from_numpy(rows).to(self.flat)  # (count, B, S) or (count, S)

    @property
    def tangent(self) -> np.ndarray:
        """The tangent vectors on the host."""
        return np.moveaxis(self._rows.detach().cpu().numpy(), 0, -2)

    def evaluate(self, x: Any, flat: torch.Tensor) -> torch.Tensor:
        """The next state of a flat one."""
        h = self._states_of(flat)
        after = self._step(h) if x is None else self._step(x, h)
        if self._is_tuple:
            after = torch.cat(tuple(after), -1)
        if getattr(after, "shape", None) != flat.shape:
            is_tensor = isinstance(after, torch.Tensor)
            returned = f"shape {tuple(after.shape)}" if is_tensor else f"a {type(after).__name__}"
            raise ShapeError(
                f"the step returned {returned} for a state of shape {tuple(flat.shape)}: return the next "
                "state with the same shape"
            )
        return after

    def push(self, x: Any) -> None:
        """Advance the state and the tangent vectors by one step."""
        flat = self.flat

        def move(vector: torch.Tensor) -> Any:
            return torch.func.jvp(lambda h: self.evaluate(x, h), (flat,), (vector,))

        if len(self._rows) == 1:
            self.flat, moved = move(self._rows[0])
            self._rows = moved[None]
        else:
            self.flat, self._rows = torch.vmap(move, out_dims=(None, 0))(self._rows)  # type: ignore[arg-type]

    def decompose(self) -> torch.Tensor:
        """Make the tangent vectors orthonormal; returns r_ii (count, B) or (count,)."""
        if len(self._rows) == 1:
            norms = torch.linalg.vector_norm(self._rows, dim=-1)
            self._rows = self._rows / norms[..., None]
            return norms
        q, r = torch.linalg.qr(self._rows.movedim(0, -1))
        self._rows = q.movedim(-1, 0)
        return r.diagonal(dim1=-2, dim2=-1).movedim(-1, 0)

    def linearize(self, x: Any, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        def both(h: torch.Tensor, x_m: Any = None) -> Any:
            after = self.evaluate(x_m, h)
            return after, after

        inputs = [torch.from_numpy(points).to(self.flat)]
        inputs += [] if x is None else [torch.from_numpy(np.array(x)).to(self.flat)]
        with torch.no_grad():
            jacobian, after = torch.vmap(torch.func.jacfwd(both, has_aux=True))(*inputs)
        return after.cpu().numpy().astype(np.float64), jacobian.cpu().numpy().astype(np.float64)

    def advance(self, inputs: Any, steps: int, every: int) -> np.ndarray:
        with torch.no_grad():
            logs = torch.stack(diagonals(self.push, self.decompose, inputs, steps, every)).abs().log()
        return logs.movedim(1, -1).cpu().numpy().astype(np.float64)


def lyapunov_exponents(
    step: Callable[..., Any],
    x: Any,
    h0: Any,
    *,
    count: int | None = None,
    every: int = 1,
    steps: int | None = None,
) -> torch.Tensor:
    """Compute differentiable Lyapunov exponents of a step function in PyTorch.

    The exponents have gradients with respect to all tensors that the step function reads.

    Parameters
    ----------
    step : callable
        The step function, ``h_next = step(x_t, h)``.
    x : tensor, (T, ...) or (T, B, ...), or None
        The inputs of all time steps. With None, the step is ``step(h)``.
    h0 : tensor or tuple of tensors, (S,) or (B, S)
        The initial state.
    count : int, default: S
        The number of exponents to compute, largest first.
    every : int, default: 1
        Number of steps between two QR decompositions.
    steps : int, optional
        The number of time steps if x is None.

    Returns
    -------
    tensor, (count,) or (B, count)
        The exponents per step, as natural logarithms. The autograd graph contains all T steps, so the memory
        grows with T.

    Raises
    ------
    ShapeError
        If a state does not have shape (S,) or (B, S), or the step changes the shape of the state.
    ArgumentError
        If a state is not a tensor.

    Notes
    -----
    Gradient flossing (Engelken 2023) uses such gradients to move the largest exponents to zero.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> weight = torch.tensor([0.5, 0.25], requires_grad=True)
    >>> exponents = bt.lyapunov_exponents(lambda x, h: x + weight * h, torch.ones(50, 2), torch.ones(2))
    >>> exponents.square().mean().backward()
    >>> weight.grad.shape
    torch.Size([2])
    """
    flow = TorchFlow(step, h0)
    flow.begin(first_tangent(flow, checked_count("lyapunov_exponents", count, flow.size), None))
    length = as_integer("lyapunov_exponents", "steps", steps, 1) if x is None else len(x)
    stretched = torch.stack(diagonals(flow.push, flow.decompose, x, length, every))
    return (stretched.abs().log().sum(0) / length).movedim(0, -1)
