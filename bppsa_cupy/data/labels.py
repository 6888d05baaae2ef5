"""Labels: which of them count."""

from __future__ import annotations

from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_integer, as_plain_array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.timescan.lengths import check_lengths

#: The label that PyTorch leaves out by default.
IGNORED = -100


def counted_labels(labels: np.ndarray, lengths: Any = None, ignore_index: int = IGNORED) -> np.ndarray:
    """Which labels, (B,) or (B, T), count: those that are not ignored and stand at no padded step.

    lengths  (B,) integers from 1 to T, or None; with labels (B, T) alone. Raises ShapeError naming sample,
             length and T.
    """
    counted = labels != as_integer("cross_entropy", "ignore_index", ignore_index)
    if lengths is None:
        return counted
    array = as_plain_array("cross_entropy", "lengths", lengths)
    if labels.ndim != 2:
        raise ShapeError("lengths were given with one label a sample: they take labels (B, T), one a step")
    batch, steps = labels.shape
    check_lengths(array, batch, steps)
    return counted & (np.arange(steps) < array[:, None])
