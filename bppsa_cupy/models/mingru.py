"""A stack of minGRUs, as language models and classifiers of long sequences are made of them."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.arguments import as_integer, is_one_of
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import GELU, Embedding, Flatten, Layer, Linear, MinGRU, Residual, RMSNorm
from bppsa_cupy.layers.recurrent import OUTPUTS
from bppsa_cupy.network import Sequential

#: Features of a block's inner layer for each of its own.
WIDER = 4


def mingru(
    input_shape: tuple[int, ...] | None = None,
    classes: int | None = None,
    hidden_size: int = 64,
    num_layers: int = 2,
    outputs: str = "last",
    forward_method: str = "auto",
    tokens: int | None = None,
    **options: Any,
) -> Sequential:
    """Blocks of two residual parts: RMSNorm and minGRU, then RMSNorm, Linear, GELU and Linear (Feng et al.
    2024, appendix C), between an embedding and a linear layer.

    hidden_size  features of every block
    num_layers   blocks
    outputs      "all" puts out scores at every step, (T, classes); "last" those of a last minGRU's last state
    tokens       how many there are, of sequences (T, 1) of their numbers; without it sequences are of
                 features, (T, F), which a linear layer takes in

    `options` are Sequential's. Raises ShapeError where the input is no sequence.
    """
    shape = (1000, 1) if input_shape is None else input_shape
    if len(shape) != 2:
        raise ShapeError(f"mingru got input {shape}: it takes sequences (T, F)")
    if not is_one_of(outputs, OUTPUTS):
        raise ShapeError(f"mingru got outputs={outputs!r}: it takes {' or '.join(map(repr, OUTPUTS))}")
    blocks = as_integer("mingru", "num_layers", num_layers, 1)
    first: list[Layer] = [Linear(shape[1], hidden_size)]
    if tokens is not None:
        if shape[1] != 1:
            raise ShapeError(f"mingru got input {shape} of {tokens} tokens: it takes their numbers, (T, 1)")
        first = [Embedding(tokens, hidden_size), Flatten(2, 3)]
    inner: list[Layer] = []
    for _ in range(blocks):
        walk = MinGRU(hidden_size, hidden_size, forward_method=forward_method)
        wide = Linear(hidden_size, WIDER * hidden_size), GELU(), Linear(WIDER * hidden_size, hidden_size)
        inner += [Residual([RMSNorm(hidden_size), walk]), Residual([RMSNorm(hidden_size), *wide])]
    last: list[Layer] = [RMSNorm(hidden_size)]
    if outputs == "last":
        last.append(MinGRU(hidden_size, hidden_size, outputs="last", forward_method=forward_method))
    scores = Linear(hidden_size, 10 if classes is None else classes)
    return Sequential([*first, *inner, *last, scores], input_shape=shape, **options)
