"""Tangent vectors along the trajectory of a recurrent layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.layers import Layer, MatrixRecurrent
from bppsa_cupy.records.streaming import HostFlow
from bppsa_cupy.system.compiled import compiled
from bppsa_cupy.timescan import suffix

#: Bytes of a matrix that a core's cache holds: a larger one passes twice for two products.
CACHE = 1 << 19


class CellFlow(HostFlow):
    """A recurrent layer of one direction, in float64 on the host.

    A state (S,) or (B, S) has the states of the inner layers one after the other, each h first, then c.
    """

    def __init__(self, layer: Layer, parameters: Mapping[str, Any], h0: Any) -> None:
        if not isinstance(layer, MatrixRecurrent) or layer.bidirectional or not layer.projects:
            raise ArgumentError(
                f"{layer!r} cannot propagate tangent vectors: pass a unidirectional RNN, GRU, LSTM or "
                "CellLayer, or the records of net.transposed_jacobians()"
            )
        self.layer, self.form, self.hidden = layer, layer.cell, layer.hidden_size
        super().__init__(h0, layer.num_layers * self.form.states * self.hidden)
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        self._inner: list[tuple[Any, ...]] = []
        for number in range(layer.num_layers):
            end = suffix(number, 0)
            weight, recurrent, bias, recurrent_bias = (
                np.array(parameters[name + end], np.float64) if name + end in parameters else None
                for name in names
            )
            if bias is None:
                bias = np.zeros(self.form.gates * self.hidden)
            unit = tuple(np.array(parameters[name + end], np.float64) for name in layer.unit_parameters)
            self._inner.append((weight, recurrent, bias[None], recurrent_bias, unit))
        states = range(self.form.states)
        self._seeds = [tuple(np.full((1, 1), float(place == row)) for place in states) for row in states]

    def push(self, x: Any) -> None:
        self.state, self.tangent = self._evaluate(x, self.state, self.tangent)

    def linearize(self, x: Any, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.batch = len(points)
        eye = np.broadcast_to(np.eye(self.size), (self.batch, self.size, self.size))
        after, rows = self._evaluate(x, points, eye)
        return after, rows.swapaxes(1, 2)

    def _evaluate(self, x: Any, state: np.ndarray, tangent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The next state and tangent vectors, of the same shapes; x is (F,) or (B, F), None for zeros."""
        form, H = self.form, self.hidden
        batch, count = state.size // self.size, tangent.shape[-2]
        states = state.reshape(batch, -1, form.states, H)
        tangents = tangent.reshape(batch, count, -1, form.states, H)
        after, moved = np.empty_like(states), np.empty_like(tangents)
        below = None if x is None else self._input(x, batch)
        entering: tuple[np.ndarray, ...] = ()
        for number, (weight, recurrent, bias, recurrent_bias, unit) in enumerate(self._inner):
            projected = bias if below is None else below @ weight.T + bias
            if number:
                entering = _parts(moved[:, :, number - 1, 0] @ weight.T, H)
            through, rows = _times(recurrent, states[:, number, 0], tangents[:, :, number, 0])
            if recurrent_bias is not None:
                through = through + recurrent_bias
            moving, before = _parts(rows, H), tuple(states[:, number].swapaxes(0, 1))
            new, saved = form.functions.forward(_parts(projected, H), _parts(through, H), before, unit)
            for row in range(form.states):
                after[:, number, row] = new[row]
                by_x, by_u, by_before, _ = form.functions.backward(self._seeds[row], saved, new, before, unit)
                terms: list[tuple[np.ndarray, np.ndarray]] = []
                if (0, row) in form.dense:
                    by_sums = dict(zip(form.separate, by_u, strict=True))
                    gates = (by_sums.get(gate, by_x[gate]) for gate in form.recurrent_gates)
                    terms += zip(gates, moving, strict=True)
                for former in range(form.states):
                    if (former, row) in form.diagonal:
                        terms.append((by_before[former], tangents[:, :, number, former]))
                if entering:
                    terms += zip(by_x, entering, strict=True)
                _sum(terms, moved[:, :, number, row])
            below = after[:, number, 0]
        return after.reshape(state.shape), moved.reshape(tangent.shape)

    def _input(self, x: Any, batch: int) -> np.ndarray:
        values, features = np.asarray(x, np.float64), self.layer.input_size
        if values.shape != (*self.shape, features):
            raise ShapeError(
                f"the input of a step has shape {values.shape}: pass {(*self.shape, features)} for each step"
            )
        return values.reshape(batch, features)


def _parts(array: np.ndarray, width: int) -> tuple[np.ndarray, ...]:
    """The parts of the last axis, each of this width."""
    size = array.shape[-1]
    return (array,) if size == width else tuple(array[..., i : i + width] for i in range(0, size, width))


def _times(weight: np.ndarray, states: np.ndarray, tangents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The products of a matrix with states (B, H) and tangent vectors (B, count, H)."""
    batch, count, size = tangents.shape
    if batch * count == 1 and weight.nbytes > CACHE:
        products = np.empty((2, len(weight)))
        _multiply_two(weight, states[0], tangents[0, 0], products)
        return products[:1], products[1:, None]
    rows = np.ascontiguousarray(tangents).reshape(-1, size) @ weight.T
    return states @ weight.T, rows.reshape(batch, count, -1)


@compiled(fastmath={"reassoc"})
def _multiply_two(matrix: Any, first: Any, second: Any, out: Any) -> None:
    """The products of a matrix with two vectors, in a single pass over the matrix."""
    for i in range(len(matrix)):
        a, b = 0.0, 0.0
        for j in range(len(first)):
            a += matrix[i, j] * first[j]
            b += matrix[i, j] * second[j]
        out[0, i], out[1, i] = a, b


def _sum(terms: list[tuple[np.ndarray, np.ndarray]], out: np.ndarray) -> None:
    """Write the sum of factor · vectors: a factor (B, H) per unit for vectors (B, count, H)."""
    if len(terms) > 1:
        terms = [term for term in terms if term[0].any()]
    if not terms:
        out[...] = 0
    for place, (factor, vectors) in enumerate(terms):
        if place:
            out += factor[:, None] * vectors
        else:
            np.multiply(factor[:, None], vectors, out=out)
