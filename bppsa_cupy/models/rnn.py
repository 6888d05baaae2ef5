"""The recurrent network (Elman 1990) that the paper trains on bitstreams (section 4.1)."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import RNN, Linear
from bppsa_cupy.network import Sequential


def rnn(
    input_shape: tuple[int, ...] = (1000, 1), classes: int = 10, hidden: int = 20, **options: Any
) -> Sequential:
    """RNN of `hidden` units, its last state, and a linear layer; `options` are Sequential's.

    Raises ShapeError where the input is no sequence (T, F).
    """
    if len(input_shape) != 2:
        raise ShapeError(f"rnn got input {input_shape}: it takes sequences (T, F)")
    layers = [RNN(input_shape[1], hidden, outputs="last"), Linear(hidden, classes)]
    return Sequential(layers, input_shape=input_shape, **options)
