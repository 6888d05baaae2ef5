"""What the recurrent models share: a recurrent layer and a linear one on its states."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Linear, Recurrent
from bppsa_cupy.network import Sequential


def sequence_classifier(
    layer: type[Recurrent],
    input_shape: tuple[int, ...],
    classes: int,
    hidden_size: int,
    num_layers: int,
    bidirectional: bool,
    outputs: str,
    forward_method: str,
    **options: Any,
) -> Sequential:
    """`layer` over sequences (T, F), and a linear layer on what it puts out; `options` are Sequential's.

    outputs  "last": one score a class from the last state; "all": from every step's, (T, classes)
    Raises ShapeError where the input is no sequence, and for arguments that `layer` refuses.
    """
    if len(input_shape) != 2:
        raise ShapeError(f"{layer.__name__.lower()} got input {input_shape}: it takes sequences (T, F)")
    recurrent = layer(
        input_shape[1], hidden_size, num_layers, bidirectional=bidirectional, outputs=outputs,
        forward_method=forward_method,
    )  # fmt: skip
    layers = [recurrent, Linear(recurrent.directions * hidden_size, classes)]
    return Sequential(layers, input_shape=input_shape, **options)
