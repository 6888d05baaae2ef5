"""Models of sequences: a recurrent layer, and a linear one on what it puts out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import GRU, LSTM, RNN, Linear, Recurrent
from bppsa_cupy.network import Sequential


def _model(
    layer: type[Recurrent], default_shape: tuple[int, ...], default_classes: int
) -> Callable[..., Sequential]:
    """The factory of the model with `layer`, whose parameters are also options of the command lines."""
    name = layer.__name__.lower()

    def build(
        input_shape: tuple[int, ...] = default_shape,
        classes: int = default_classes,
        hidden_size: int = 20,
        num_layers: int = 1,
        bidirectional: bool = False,
        outputs: str = "last",
        forward_method: str = "auto",
        **options: Any,
    ) -> Sequential:
        if len(input_shape) != 2:
            raise ShapeError(f"{name} got input {input_shape}: it takes sequences (T, F)")
        recurrent = layer(
            input_shape[1], hidden_size, num_layers, bidirectional=bidirectional, outputs=outputs,
            forward_method=forward_method,
        )  # fmt: skip
        layers = [recurrent, Linear(recurrent.directions * hidden_size, classes)]
        return Sequential(layers, input_shape=input_shape, **options)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"""{layer.__name__} of `hidden_size` units, its last state, and a linear layer.

    `options` are Sequential's, the others those of the layer; outputs="all" gives scores at every step,
    (T, classes). Raises ShapeError where the input is no sequence (T, F), and for what the layer refuses.
    """
    return build


#: The recurrent network (Elman 1990) that the paper trains on bitstreams (section 4.1).
rnn = _model(RNN, (1000, 1), 10)
#: The GRU (Cho et al. 2014) that the paper trains on MFCC features of IRMAS, set M (section 4.2).
gru = _model(GRU, (517, 24), 11)
#: An LSTM (Hochreiter and Schmidhuber 1997) instead of the paper's GRU.
lstm = _model(LSTM, (517, 24), 11)
