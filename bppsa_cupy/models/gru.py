"""The GRU (Cho et al. 2014) that the paper trains on MFCC features of IRMAS, set M (section 4.2)."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import GRU, Linear
from bppsa_cupy.network import Sequential


def gru(
    input_shape: tuple[int, ...] = (517, 24), classes: int = 11, hidden: int = 20, **options: Any
) -> Sequential:
    """GRU of `hidden` units, its last state, and a linear layer; `options` are Sequential's.

    Raises ShapeError where the input is no sequence (T, F).
    """
    if len(input_shape) != 2:
        raise ShapeError(f"gru got input {input_shape}: it takes sequences (T, F)")
    layers = [GRU(input_shape[1], hidden, outputs="last"), Linear(hidden, classes)]
    return Sequential(layers, input_shape=input_shape, **options)
