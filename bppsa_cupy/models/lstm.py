"""An LSTM (Hochreiter and Schmidhuber 1997) in the place of the paper's GRU (section 4.2)."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.layers import LSTM
from bppsa_cupy.models.classifier import sequence_classifier
from bppsa_cupy.network import Sequential


def lstm(
    input_shape: tuple[int, ...] = (517, 24),
    classes: int = 11,
    hidden_size: int = 20,
    num_layers: int = 1,
    bidirectional: bool = False,
    outputs: str = "last",
    forward_method: str = "auto",
    **options: Any,
) -> Sequential:
    """LSTM of `hidden_size` units, its last state, and a linear layer; `options` are Sequential's.

    Arguments beside are those of the layer; outputs="all" gives scores at every step, (T, classes).
    Raises ShapeError where the input is no sequence (T, F), and for arguments that the layer refuses.
    """
    return sequence_classifier(
        LSTM, input_shape, classes, hidden_size, num_layers, bidirectional, outputs, forward_method, **options
    )
