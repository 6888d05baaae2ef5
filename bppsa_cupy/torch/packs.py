"""Packed sequences as padded ones and back."""

from __future__ import annotations

import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from bppsa_cupy.errors import ShapeError


def unpack(name: str, pack: PackedSequence, features: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The sequences (B, T, F) in the pack's own order, longest first, and their lengths (B,).

    name  of the module, for messages

    Raises ShapeError for a pack whose parts do not belong together.
    """
    data, sizes = pack.data, pack.batch_sizes
    if data.dim() != 2 or data.shape[1] != features:
        raise ShapeError(f"{name} got a pack of {tuple(data.shape)} values: it takes (steps, {features})")
    if int(sizes.sum()) != data.shape[0] or bool((sizes[1:] > sizes[:-1]).any()) or int(sizes[-1]) < 1:
        raise ShapeError(
            f"{name} got a pack of {data.shape[0]} steps whose batch_sizes are {sizes.tolist()}: they must "
            "fall, and their sum must be the steps; pack the sequences again, by pack_padded_sequence"
        )
    return pad_packed_sequence(PackedSequence(data, sizes), batch_first=True)


def repack(y: torch.Tensor, lengths: torch.Tensor, pack: PackedSequence) -> PackedSequence:
    """Outputs (B, T, columns) of sequences that `unpack` gave, packed as these were."""
    data = pack_padded_sequence(y, lengths, batch_first=True).data
    return PackedSequence(data, pack.batch_sizes, pack.sorted_indices, pack.unsorted_indices)
