"""Tangent vectors along the trajectory of a recurrent layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Layer, MatrixRecurrent
from bppsa_cupy.records.streaming import HostFlow
from bppsa_cupy.timescan import suffix


class CellFlow(HostFlow):
    """A recurrent layer of one direction, in float64 on the host.

    A state (S,) or (B, S) has the states of the inner layers one after the other, each h first, then c.
    """

    def __init__(self, layer: Layer, parameters: Mapping[str, Any], h0: Any) -> None:
        if not isinstance(layer, MatrixRecurrent) or layer.bidirectional or not layer.projects:
            raise ShapeError(
                f"{layer!r} has no tangent vectors: pass an RNN, GRU, LSTM or CellLayer of one direction, or "
                "the records of net.transposed_jacobians()"
            )
        self.layer, self.form, self.hidden = layer, layer.cell, layer.hidden_size
        self.width = self.form.states * self.hidden
        self.size = layer.num_layers * self.width
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        self._inner: list[tuple[Any, ...]] = []
        for number in range(layer.num_layers):
            of = suffix(number, 0)
            arrays = [
                np.array(parameters[name + of], np.float64) if name + of in parameters else None
                for name in names
            ]
            unit = tuple(np.array(parameters[name + of], np.float64) for name in layer.unit_parameters)
            self._inner.append((*arrays, unit))
        self._state = np.array(h0, np.float64)
        if self._state.ndim not in (1, 2) or self._state.shape[-1] != self.size:
            raise ShapeError(
                f"h0 has shape {self._state.shape}: the states of {layer!r} have {self.size} elements, so "
                f"pass ({self.size},), or (B, {self.size}) for a batch"
            )
        self.batch = len(self._state) if self._state.ndim == 2 else None

    def push(self, x: Any) -> None:
        self._state, self.tangent = self.evaluate(x, self._state, self.tangent)

    def linearize(self, x: Any, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.batch = len(points)
        eye = np.broadcast_to(np.eye(self.size), (self.batch, self.size, self.size))
        after, rows = self.evaluate(x, points, eye)
        return after, rows.swapaxes(1, 2)

    def evaluate(self, x: Any, state: np.ndarray, tangent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The next state and tangent vectors, of the same shapes; x is (F,) or (B, F), None for zeros."""
        form, functions, H = self.form, self.form.functions, self.hidden
        batch, count = state.size // self.size, tangent.shape[-2]
        states = state.reshape(batch, -1, form.states, H)
        tangents = tangent.reshape(batch, count, -1, form.states, H)
        after, moved = np.empty_like(states), np.zeros_like(tangents)
        below = None if x is None else self._input(x, batch)
        below_tangent: np.ndarray | None = None
        for number, (weight, recurrent, bias, recurrent_bias, unit) in enumerate(self._inner):
            projected = np.zeros((batch, form.gates * H)) if below is None else below @ weight.T
            if bias is not None:
                projected += bias
            through = self._recurrent(recurrent, states[:, number, 0])
            if recurrent_bias is not None:
                through = through + recurrent_bias
            moving = self._recurrent(recurrent, tangents[:, :, number, 0])
            before = tuple(states[:, number].swapaxes(0, 1))
            entering = None if below_tangent is None else below_tangent @ weight.T
            given = _parts(projected, H), _parts(through, H), before, unit
            new, kept = functions.forward(*given)
            for row in range(form.states):
                after[:, number, row] = new[row]
                seed = tuple(np.full((batch, H), float(place == row)) for place in range(form.states))
                by_x, by_u, by_before, _ = functions.backward(seed, kept, new, *given[2:])
                by_sums = dict(zip(form.separate, by_u, strict=True))
                target = moved[:, :, number, row]
                if (0, row) in form.dense:
                    for gate, part in zip(form.recurrent_gates, _parts(moving, H), strict=True):
                        _add(target, by_sums.get(gate, by_x[gate]), part)
                for former in range(form.states):
                    if (former, row) in form.diagonal:
                        _add(target, by_before[former], tangents[:, :, number, former])
                if entering is not None:
                    for factor, part in zip(by_x, _parts(entering, H), strict=True):
                        _add(target, factor, part)
            below, below_tangent = after[:, number, 0], moved[:, :, number, 0]
        return after.reshape(state.shape), moved.reshape(tangent.shape)

    def _input(self, x: Any, batch: int) -> np.ndarray:
        given, features = np.asarray(x, np.float64), self.layer.input_size
        if given.shape != (*self.shape, features):
            raise ShapeError(f"an input has shape {given.shape}: pass {(*self.shape, features)} per step")
        return given.reshape(batch, features)

    def _recurrent(self, weight: np.ndarray | None, h: np.ndarray) -> np.ndarray:
        """W_hh h for vectors (..., H): (..., gates H)."""
        if weight is None:
            return h[..., :0]
        heads, H = self.layer.heads, self.hidden
        if heads == 1:
            return (np.ascontiguousarray(h).reshape(-1, H) @ weight.T).reshape(*h.shape[:-1], -1)
        blocks = weight.reshape(-1, heads, H // heads, H // heads)
        found = np.einsum("ghij,...hj->...ghi", blocks, h.reshape(*h.shape[:-1], heads, H // heads))
        return found.reshape(*h.shape[:-1], -1)


def _parts(array: np.ndarray, width: int) -> tuple[np.ndarray, ...]:
    """The parts of the last axis, each of this width."""
    return tuple(array[..., first : first + width] for first in range(0, array.shape[-1], width))


def _add(target: np.ndarray, factor: np.ndarray, vectors: np.ndarray) -> None:
    """target += factor · vectors, a factor (B, H) per unit for vectors (B, count, H)."""
    if factor.any():
        target += factor[:, None] * vectors
