"""Micro-batches: their samples, and their part of a batch's loss."""

from __future__ import annotations

import numpy as np

from bppsa_cupy.data import Batch
from bppsa_cupy.data.labels import counted_labels
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.training.losses import cross_entropy


def samples_of(size: int, parts: int, number: int) -> slice:
    """The samples of one of the parts of a batch of `size`: their numbers differ by one at most, and are 0
    where there are more parts than samples."""
    return slice(size * number // parts, size * (number + 1) // parts)


def loss_of(
    scores: Array, batch: Batch, samples: slice, smoothing: float, device: Device
) -> tuple[Array, Array]:
    """What a micro-batch adds to the loss of its batch, by its share of the labels that count, and the
    gradient by its scores. Raises what `cross_entropy` raises, also where no label of the batch counts."""
    labels = batch.labels[samples]
    lengths = None if batch.label_lengths is None else batch.label_lengths[samples]
    if len(labels) == len(batch.labels):
        return cross_entropy(scores, labels, lengths=lengths, label_smoothing=smoothing, device=device)
    counted = np.count_nonzero(counted_labels(labels, lengths))
    every = np.count_nonzero(counted_labels(batch.labels, batch.label_lengths))
    if every and not counted:
        return device.zeros((), scores.dtype), device.zeros(scores.shape, scores.dtype)
    loss, gradient = cross_entropy(scores, labels, lengths=lengths, label_smoothing=smoothing, device=device)
    share = scores.dtype.type(counted / every)
    return loss * share, gradient * share
