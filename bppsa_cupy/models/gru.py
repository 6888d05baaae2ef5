"""The GRU (Cho et al. 2014) that the paper trains on MFCC features of IRMAS, set M (section 4.2)."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.layers import GRU
from bppsa_cupy.models.classifier import sequence_classifier
from bppsa_cupy.network import Sequential


def gru(
    input_shape: tuple[int, ...] = (517, 24),
    classes: int = 11,
    hidden_size: int = 20,
    num_layers: int = 1,
    bidirectional: bool = False,
    outputs: str = "last",
    forward_method: str = "auto",
    **options: Any,
) -> Sequential:
    """GRU of `hidden_size` units, its last state, and a linear layer; `options` are Sequential's.

    Arguments beside are those of the layer; outputs="all" gives scores at every step, (T, classes).
    Raises ShapeError where the input is no sequence (T, F), and for arguments that the layer refuses.
    """
    return sequence_classifier(
        GRU, input_shape, classes, hidden_size, num_layers, bidirectional, outputs, forward_method, **options
    )
