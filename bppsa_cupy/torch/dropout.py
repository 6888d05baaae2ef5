"""Dropout between the inner layers of a recurrent module in training, as PyTorch has it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bppsa_cupy.torch.autograd import run
from bppsa_cupy.torch.engine_layer import Arguments


def with_dropout(
    arguments: Sequence[Arguments],
    p: float,
    layers: int,
    x: torch.Tensor,
    lengths: torch.Tensor | None,
    batch_first: bool,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """Output and last states of `run`, an inner layer at a time: the output of each but the last goes through
    torch.nn.functional.dropout, which zeroes a value with probability p and scales others by 1 / (1 - p).

    arguments   of the first inner layer alone, and of each that follows
    layers      inner layers, whose states and parameters follow each other

    Law: zeros are drawn from PyTorch's generator of x's device over outputs (T, B, columns) in memory order,
    as torch.nn's modules on the CPU draw theirs for padded sequences: of equal seeds both drop the same.
    """
    own = len(parameters) // layers
    rows = states[0].shape[0] // layers if states else 0
    after = []
    for number in range(layers):
        initial = [state[number * rows : (number + 1) * rows] for state in states]
        given = parameters[number * own : (number + 1) * own]
        x, *last = run(arguments[min(number, 1)], x, lengths, initial, given)
        after.append(last)
        if number + 1 < layers:
            by_time = x.transpose(0, 1).contiguous() if batch_first else x
            x = torch.nn.functional.dropout(by_time, p)
            x = x.transpose(0, 1) if batch_first else x
    return [x, *map(torch.cat, zip(*after, strict=True))]
