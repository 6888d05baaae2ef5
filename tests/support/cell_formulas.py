"""The steps of the built-in cells by their papers' formulas, on the arrays of any library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import bppsa_cupy as bp

Function = Callable[[Any], Any]


def formulas(sigmoid: Function, tanh: Function, relu: Function) -> dict[str, Callable[..., list[Any]]]:
    """The step (x, u, s, p) -> new states of each built-in cell, by a library's functions."""

    def gru(x, u, s, p):
        r, z = sigmoid(x.r + u.r), sigmoid(x.z + u.z)
        return [(1 - z) * tanh(x.n + r * u.n) + z * s.h]

    def lstm(x, u, s, p):
        i, f, o = sigmoid(x.i + u.i), sigmoid(x.f + u.f), sigmoid(x.o + u.o)
        c = f * s.c + i * tanh(x.g + u.g)
        return [o * tanh(c), c]

    return {
        "rnn_tanh": lambda x, u, s, p: [tanh(x.h + u.h)],
        "rnn_relu": lambda x, u, s, p: [relu(x.h + u.h)],
        "gru": gru,
        "lstm": lstm,
    }


def spaces(cell: bp.Cell, *values: Sequence[Any]) -> list[SimpleNamespace]:
    """The arguments x, u, s and p of a cell's step."""
    names = cell.gates, cell.recurrent, cell.states, cell.parameters
    pairs = zip(names, values, strict=True)
    return [SimpleNamespace(**dict(zip(keys, arrays, strict=True))) for keys, arrays in pairs]
