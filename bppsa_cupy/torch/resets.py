"""Sequences whose state is set to zero inside: each part between two resets is a sequence of a pack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bppsa_cupy.errors import ShapeError


def with_resets(
    call: Callable[[Any, Any], tuple[Any, Any]],
    module: Any,
    x: torch.Tensor,
    states: list[torch.Tensor],
    resets: torch.Tensor,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Output and last states of `call`, which takes a pack and its first states, over sequences with resets.

    x       (B, T, F), or (T, B, F) without batch_first
    states  before the first step, (num_layers D, B, H); without any they are zeros
    resets  bool, of x's first two axes: the state before a marked step is zero. The reverse direction is cut
            at the same place, between the step before and the marked one

    Raises ShapeError for resets of another shape or dtype.
    """
    name = type(module).__name__
    if not isinstance(resets, torch.Tensor) or resets.dtype != torch.bool or resets.shape != x.shape[:2]:
        is_tensor = isinstance(resets, torch.Tensor)
        given = f"{resets.dtype} of {tuple(resets.shape)}" if is_tensor else type(resets).__name__
        raise ShapeError(f"{name} got resets of {given}: they must be torch.bool of {tuple(x.shape[:2])}")
    if not module.batch_first:
        x, resets = x.transpose(0, 1), resets.T
    batch, steps = resets.shape
    begins = resets.clone()
    begins[:, 0] = True
    starts = begins.flatten().nonzero()[:, 0]
    ends = torch.cat([starts[1:], starts.new_tensor([batch * steps])])
    lengths = ends - starts
    longest = int(lengths.max())
    places = starts[:, None] + torch.arange(longest, device=x.device)
    values = x.flatten(0, 1)[places.clamp(max=batch * steps - 1)]
    pack = pack_padded_sequence(values, lengths.cpu(), batch_first=True, enforce_sorted=False)
    samples = starts // steps
    first, last = starts % steps == 0, ends % steps == 0
    if states:
        goes_on = first & ~resets[samples, 0]
        by_row = [last if module.bidirectional and row % 2 else goes_on for row in range(len(states[0]))]
        carries = torch.stack(by_row)[..., None]
        states = [torch.where(carries, state[:, samples], 0) for state in states]
    output, after = call(pack, (states[0] if len(states) == 1 else tuple(states)) if states else None)
    y, _ = pad_packed_sequence(output, batch_first=True)
    number = begins.flatten().cumsum(0) - 1
    offset = torch.arange(batch * steps, device=x.device) - starts[number]
    y = y[number, offset].unflatten(0, (batch, steps))
    ending = []
    for state in after if isinstance(after, tuple) else (after,):
        rows = [state[row, first if module.bidirectional and row % 2 else last] for row in range(len(state))]
        ending.append(torch.stack(rows))
    return (y if module.batch_first else y.transpose(0, 1)), ending
