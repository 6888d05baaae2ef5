"""The recurrence h_t = a_t h_{t-1} + b_t step by step, in NumPy and for PyTorch's autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def random_of(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Normal numbers, of complex ones both parts."""
    values = rng.standard_normal(shape)
    return (values + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else values).astype(dtype)


def states_of(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The states from zero on."""
    a, h = np.broadcast_to(a, b.shape), np.zeros_like(b)
    for t in range(b.shape[1]):
        h[:, t] = (a[:, t] * h[:, t - 1] if t else 0) + b[:, t]
    return h


def scan_of_torch(
    a: torch.Tensor,
    b: torch.Tensor,
    h0: torch.Tensor | None = None,
    reverse: bool = False,
    lengths: Any = None,
    resets: Any = None,
) -> torch.Tensor:
    """All that `bp.linear_scan` does, sample by sample and step by step."""
    (batch, steps), zero = b.shape[:2], b.new_zeros(b.shape[2])
    a = a.expand(b.shape)
    marks = np.broadcast_to(False if resets is None else resets, (batch, steps))
    rows = [[zero] * steps for _ in range(batch)]
    for sample in range(batch):
        carried = zero if h0 is None else h0[sample]
        live = range(steps if lengths is None else int(lengths[sample]))
        for t in reversed(live) if reverse else live:
            carried = b[sample, t] + (0 if marks[sample, t] else a[sample, t] * carried)
            rows[sample][t] = carried
    stacked = [torch.stack(row) if steps else b[0] * 0 for row in rows]
    return torch.stack(stacked) if batch else b * 1
