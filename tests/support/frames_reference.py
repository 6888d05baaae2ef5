"""Recurrent cells by their definitions, in NumPy with loops over steps and samples.

Derivatives are complex steps of the definitions, so they share nothing with the texts that are tested.
Array are float64: projected (steps, G, H, B), weight_hh (sets, G, H, H), bias_hh (sets, G, H), unit
(sets, Q, H), initial (P, H, B), lengths (B,); walk b takes set b // group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

Array = np.ndarray


def sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


def rnn_tanh(x: Array, u: Array, s: Array, p: Array) -> list[Array]:
    return [np.tanh(x[0] + u[0])]


def rnn_relu(x: Array, u: Array, s: Array, p: Array) -> list[Array]:
    z = x[0] + u[0]
    return [np.where(z.real > 0, z, 0)]


def gru(x: Array, u: Array, s: Array, p: Array) -> list[Array]:
    r, z = sigmoid(x[0] + u[0]), sigmoid(x[1] + u[1])
    return [(1 - z) * np.tanh(x[2] + r * u[2]) + z * s[0]]


def lstm(x: Array, u: Array, s: Array, p: Array) -> list[Array]:
    i, f, o = (sigmoid(x[g] + u[g]) for g in (0, 1, 3))
    c = f * s[1] + i * np.tanh(x[2] + u[2])
    return [o * np.tanh(c), c]


def ctrnn(x: Array, u: Array, s: Array, p: Array) -> list[Array]:
    return [(1 - p[0]) * s[0] + p[0] * np.tanh(x[0] + u[0])]


def mgu(x: Array, u: Array, s: Array, p: Array) -> list[Array]:
    f = sigmoid(x[0] + u[0])
    return [(1 - f) * s[0] + f * np.tanh(x[1] + f * u[1])]


def ugrnn(x: Array, u: Array, s: Array, p: Array) -> list[Array]:
    g = sigmoid(x[0] + u[0])
    return [g * s[0] + (1 - g) * np.tanh(x[1] + u[1])]


def peephole_lstm(x: Array, u: Array, s: Array, p: Array) -> list[Array]:
    i, f = sigmoid(x[0] + u[0] + p[0] * s[1]), sigmoid(x[1] + u[1] + p[1] * s[1])
    c = f * s[1] + i * np.tanh(x[2] + u[2])
    return [sigmoid(x[3] + u[3] + p[2] * c) * np.tanh(c), c]


def mixed(x: Array, u: Array, s: Array, p: Array) -> list[Array]:
    f = sigmoid(x[0] + u[0])
    c = f * s[1] + (1 - f) * np.tanh(x[1] + p[0] * u[1]) + p[1] * s[0]
    return [f * c, c]


def turning(x: Array, u: Array, s: Array, p: Array) -> list[Array]:
    a = sigmoid(x[0])
    return [a * s[0] - p[0] * s[1] + x[1], p[0] * s[0] + a * s[1] + (1 - a) * x[1]]


def averages(x: Array, u: Array, s: Array, p: Array) -> list[Array]:
    fast = s[1] + sigmoid(x[0]) * (x[1] - s[1])
    slow = s[2] + p[0] * (fast - s[2])
    return [np.tanh(x[2]) * (fast - slow) + 0.1 * s[2], fast, slow]


def independent(x: Array, u: Array, s: Array, p: Array) -> list[Array]:
    return [np.tanh(x[0] + p[0] * s[0])]


def peeping(x: Array, u: Array, s: Array, p: Array) -> list[Array]:
    c = x[0] + sigmoid(x[1] + p[0] * s[1]) * (s[1] - x[0])
    return [sigmoid(x[2] + p[1] * s[1]) * c, c]


def partly(x: Array, u: Array, s: Array, p: Array) -> list[Array]:
    n = np.tanh(x[2] + sigmoid(x[1] + u[0]) * u[1])
    return [n + sigmoid(x[0]) * (s[0] - n)]


def forgetful(x: Array, u: Array, s: Array, p: Array) -> list[Array]:
    c = sigmoid(x[1]) * s[1] + sigmoid(x[0] + u[0]) * np.tanh(x[2])
    return [sigmoid(x[3] + u[1]) * np.tanh(c), c]


STEPS: dict[str, Callable[..., list[Array]]] = {
    step.__name__: step
    for step in (
        rnn_tanh, rnn_relu, gru, lstm, ctrnn, mgu, ugrnn, peephole_lstm, mixed, turning, averages,
        independent, peeping, partly, forgetful,
    )
}  # fmt: skip


class Reference:
    """A layer's walk in one direction, by time, and what follows from it.

    before, states  (steps, P, H, B): states before and after each step, by time
    """

    def __init__(
        self,
        step: Callable[..., list[Array]],
        projected: Array,
        weight_hh: Array,
        bias_hh: Array,
        unit: Array,
        initial: Array,
        lengths: Array,
        group: int,
        reverse: bool,
    ) -> None:
        self.step, self.projected, self.lengths, self.group = step, projected, lengths, group
        self.weight_hh, self.bias_hh, self.unit = weight_hh, bias_hh, unit
        times = list(range(len(projected)))
        self.times = times[::-1] if reverse else times
        self.before = np.zeros((len(times), *initial.shape))
        self.states = np.zeros_like(self.before)
        now = initial.copy()
        for t in self.times:
            self.before[t] = now
            for b in np.flatnonzero(t < lengths):
                now[..., b] = step(*self._given(t, b))
            self.states[t] = now
        self.final = now

    def _given(self, t: int, b: int) -> tuple[Array, Array, Array, Array]:
        of, before = b // self.group, self.before[t, ..., b]
        u = self.bias_hh[of] + self.weight_hh[of] @ before[0]
        return self.projected[t, ..., b], u, before, self.unit[of]

    def partials(self, t: int, b: int) -> list[Array]:
        """Derivatives of the new states by x, u, former states and parameters, each alone: (P, n, H)."""
        given, tiny = self._given(t, b), 1e-100
        found = []
        for place, argument in enumerate(given):
            rows = []
            for row in range(len(argument)):
                moved = [value.astype(complex) for value in given]
                moved[place][row] += 1j * tiny
                rows.append(np.imag(self.step(*moved)) / tiny)
            shape = (len(rows), len(given[2]), argument.shape[1])
            found.append(np.reshape(rows, shape).transpose(1, 0, 2))
        return found

    def jacobian(self, t: int, b: int) -> Array:
        """The transposed Jacobian of a step, (P H, P H): by the states before, of the states after."""
        size = self.before[t, ..., b].size
        if t >= self.lengths[b]:
            return np.eye(size)
        _, by_u, by_state, _ = self.partials(t, b)
        states, hidden = by_state.shape[1:]
        blocks = np.zeros((states, hidden, states, hidden))
        for j, i in np.ndindex(states, states):
            blocks[j, :, i, :] = np.diag(by_state[i, j])
            if j == 0:
                blocks[j, :, i, :] += np.einsum("gch,gc->hc", self.weight_hh[b // self.group], by_u[i])
        return blocks.reshape(size, size)

    def chunks(self, chunk: int) -> list[list[int]]:
        """The times of each chunk's steps."""
        return [self.times[start : start + chunk] for start in range(0, len(self.times), chunk)]

    def back(
        self, chunk: int, boundary: Array, gradient: Array | None, separate: Sequence[int]
    ) -> tuple[Array, Array]:
        """delta (steps, D, H, B) and entering (chunks, P, H, B), of boundary (chunks, P, H, B)."""
        _, gates, hidden, batch = self.projected.shape
        delta = np.zeros((len(self.times), gates + len(separate) + self.unit.shape[1], hidden, batch))
        entering = boundary.copy()
        for number, times in enumerate(self.chunks(chunk)):
            for t, b in product(times[::-1], range(entering.shape[-1])):
                if t >= self.lengths[b]:
                    continue
                g = entering[number, ..., b]
                if gradient is not None:
                    g[0] += gradient[t, :, b]
                by_x, by_u, _, by_p = (np.einsum("ph,pnh->nh", g, d) for d in self.partials(t, b))
                delta[t, ..., b] = np.concatenate([by_x, by_u[list(separate)], by_p])
                g[...] = (self.jacobian(t, b) @ g.ravel()).reshape(g.shape)
        return delta, entering

    def products(self, chunk: int, first: int, gradient: Array | None) -> tuple[Array, Array]:
        """maps (chunks - first, B, P H, P H), by columns, and offsets (chunks - first, P, H, B)."""
        _, states, hidden, batch = self.before.shape
        chunks, size = self.chunks(chunk)[first:], states * hidden
        maps, offsets = np.zeros((len(chunks), batch, size, size)), np.zeros((len(chunks), size, batch))
        for (number, times), b in product(enumerate(chunks), range(batch)):
            matrix, own = np.eye(size), np.zeros(size)
            for t in times[::-1]:
                if gradient is not None and t < self.lengths[b]:
                    own[:hidden] += gradient[t, :, b]
                jacobian = self.jacobian(t, b)
                matrix, own = jacobian @ matrix, jacobian @ own
            maps[number, b], offsets[number, :, b] = matrix.T, own
        return maps, offsets.reshape(len(chunks), states, hidden, batch)

    def entries(self, blocks: Sequence[tuple[int, int, bool]]) -> Array:
        """Values (steps, nnz, B) of the blocks (former state, new state, dense) of each Jacobian, by rows."""
        steps, states, hidden, batch = self.before.shape
        places = [
            (j * hidden + row, i * hidden + column)
            for j, row in product(range(states), range(hidden))
            for former, i, dense in blocks
            if former == j
            for column in (range(hidden) if dense else [row])
        ]
        rows, columns = np.reshape(places, (-1, 2)).T.astype(int)
        values = np.zeros((steps, len(places), batch))
        for t, b in product(range(steps), range(batch)):
            jacobian = self.jacobian(t, b)
            values[t, :, b] = jacobian[rows, columns]
            jacobian[rows, columns] = 0
            assert not jacobian.any(), "an entry lies outside the blocks"
        return values
