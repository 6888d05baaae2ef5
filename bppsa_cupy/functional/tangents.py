"""Tangent vectors along the trajectory of a recurrent layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.layers import Layer, MatrixRecurrent
from bppsa_cupy.records.streaming import HostFlow, log_stretches
from bppsa_cupy.timescan import suffix

#: What the derivatives of a cell read at one step: saved arrays, states after the step, states before it.
Point = tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], tuple[np.ndarray, ...]]
#: Terms of a derivative: the kind and number of the vectors, and the factor of each unit.
Terms = list[tuple[str, int, np.ndarray]]


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
        self.width = self.form.states * self.hidden
        self.size = layer.num_layers * self.width
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        self._inner: list[tuple[Any, ...]] = []
        for number in range(layer.num_layers):
            of = suffix(number, 0)
            weight, recurrent, bias, recurrent_bias = (
                np.array(parameters[name + of], np.float64) if name + of in parameters else None
                for name in names
            )
            if bias is None:
                bias = np.zeros(self.form.gates * self.hidden)
            unit = tuple(np.array(parameters[name + of], np.float64) for name in layer.unit_parameters)
            self._inner.append((weight, recurrent, bias, recurrent_bias, unit))
        self._state = np.array(h0, np.float64)
        if self._state.ndim not in (1, 2) or self._state.shape[-1] != self.size:
            raise ShapeError(
                f"h0 has shape {self._state.shape}, but the states of {layer!r} have {self.size} elements: "
                f"pass ({self.size},), or (B, {self.size}) for a batch"
            )
        self.batch = len(self._state) if self._state.ndim == 2 else None

    def advance(self, inputs: Any, steps: int, every: int) -> np.ndarray:
        points = []
        for step in range(steps):
            self._state, point = self._forward(None if inputs is None else inputs[step], self._state)
            points.append(point)
        derivatives = self._linearized(points)

        def push(step: int) -> None:
            self.tangent = self._multiply(derivatives, step, self.tangent)

        return log_stretches(push, self.orthonormalize, steps, every)

    def linearize(self, x: Any, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.batch = len(points)
        eye = np.broadcast_to(np.eye(self.size), (self.batch, self.size, self.size))
        after, point = self._forward(x, points)
        return after, self._multiply(self._linearized([point]), 0, eye).swapaxes(1, 2)

    def _forward(self, x: Any, state: np.ndarray) -> tuple[np.ndarray, list[Point]]:
        """The next state, and what its derivatives read; x is (F,) or (B, F), None for zeros."""
        form, H, batch = self.form, self.hidden, state.size // self.size
        states = state.reshape(batch, -1, form.states, H)
        after, points = np.empty_like(states), []
        below = None if x is None else self._input(x, batch)
        for number, (weight, recurrent, bias, recurrent_bias, unit) in enumerate(self._inner):
            projected = np.broadcast_to(bias, (batch, bias.size))
            if below is not None:
                projected = below @ weight.T + bias
            through = _times(states[:, number, 0], recurrent)
            if recurrent_bias is not None:
                through = through + recurrent_bias
            before = tuple(states[:, number].swapaxes(0, 1))
            new, saved = form.functions.forward(_parts(projected, H), _parts(through, H), before, unit)
            for row in range(form.states):
                after[:, number, row] = new[row]
            points.append((saved, new, before))
            below = after[:, number, 0]
        return after.reshape(state.shape), points

    def _linearized(self, points: list[list[Point]]) -> list[list[Terms]]:
        """The partial derivatives of some steps, per inner layer and state: factors (steps, B, 1, H)."""
        form = self.form
        layers: list[list[Terms]] = []
        for (*_, unit), steps in zip(self._inner, zip(*points, strict=True), strict=True):
            saved, new, before = (
                tuple(map(np.concatenate, zip(*arrays, strict=True))) for arrays in zip(*steps, strict=True)
            )
            rows = []
            for row in range(form.states):
                seed = tuple(np.full((1, 1), float(place == row)) for place in range(form.states))
                by_x, by_u, by_before, _ = form.functions.backward(seed, saved, new, before, unit)
                by_sums = dict(zip(form.separate, by_u, strict=True))
                terms = {}
                if (0, row) in form.dense:
                    for place, gate in enumerate(form.recurrent_gates):
                        terms["recurrent", place] = by_sums.get(gate, by_x[gate])
                for former in range(form.states):
                    if (former, row) in form.diagonal:
                        terms["state", former] = by_before[former]
                if layers:
                    terms |= {("below", gate): factor for gate, factor in enumerate(by_x)}
                shape = len(points), -1, 1, self.hidden
                rows.append([
                    (*key, np.broadcast_to(factor, new[0].shape).reshape(shape))
                    for key, factor in terms.items()
                    if factor.any()
                ])  # fmt: skip
            layers.append(rows)
        return layers

    def _multiply(self, layers: list[list[Terms]], step: int, tangent: np.ndarray) -> np.ndarray:
        """The Jacobian of a step times tangent vectors."""
        H, count = self.hidden, tangent.shape[-2]
        tangents = tangent.reshape(-1, count, len(layers), self.form.states, H)
        moved = np.empty_like(tangents)
        for number, rows in enumerate(layers):
            weight, recurrent = self._inner[number][:2]
            vectors = {"recurrent": _parts(_times(tangents[:, :, number, 0], recurrent), H)}
            vectors["state"] = tuple(np.moveaxis(tangents[:, :, number], 2, 0))
            if number:
                vectors["below"] = _parts(moved[:, :, number - 1, 0] @ weight.T, H)
            for row, terms in enumerate(rows):
                target = moved[:, :, number, row]
                if not terms:
                    target[...] = 0
                for place, (source, gate, factor) in enumerate(terms):
                    if place:
                        target += factor[step] * vectors[source][gate]
                    else:
                        np.multiply(factor[step], vectors[source][gate], out=target)
        return moved.reshape(tangent.shape)

    def _input(self, x: Any, batch: int) -> np.ndarray:
        given, features = np.asarray(x, np.float64), self.layer.input_size
        if given.shape != (*self.shape, features):
            raise ShapeError(
                f"the input of a step has shape {given.shape}: pass {(*self.shape, features)} for each step"
            )
        return given.reshape(batch, features)


def _parts(array: np.ndarray, width: int) -> tuple[np.ndarray, ...]:
    """The parts of the last axis, each of this width."""
    return tuple(array[..., first : first + width] for first in range(0, array.shape[-1], width))


def _times(vectors: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The product of a matrix with vectors (..., H)."""
    return (np.ascontiguousarray(vectors).reshape(-1, vectors.shape[-1]) @ weight.T).reshape(
        *vectors.shape[:-1], -1
    )
