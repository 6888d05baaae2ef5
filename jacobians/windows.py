"""The entries of a transposed Jacobian between two planes that a sliding window connects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bppsa_cupy.csr import Pattern, index_dtype
from bppsa_cupy.geometry import Axis, Pool2dGeometry


@dataclass(frozen=True, eq=False)
class WindowEntries:
    """Entries by row (input position of a plane), each row repeated for `repeats` output planes.

    Inside a row, entries are sorted by plane, then output position.

    Attributes
    ----------
    row_lengths : array
        (inputs,) entries of each row.
    plane : array
        (entries,) output plane of each entry.
    output : array
        (entries,) output position inside its plane.
    tap : array
        (entries,) position in the flattened kernel.
    """

    row_lengths: np.ndarray
    plane: np.ndarray
    output: np.ndarray
    tap: np.ndarray


def window_entries(vertical: Axis, horizontal: Axis, repeats: int = 1) -> WindowEntries:
    """Every valid tap between one input plane and `repeats` output planes."""
    down, across = vertical.taps(), horizontal.taps()
    height, width = vertical.inputs, horizontal.inputs
    row_lengths = repeats * np.outer(down.counts, across.counts).reshape(-1)
    ends = np.cumsum(row_lengths)
    total = int(ends[-1]) if ends.size else 0
    row = np.repeat(np.arange(height * width), row_lengths)
    ordinal = np.arange(total) - np.repeat(ends - row_lengths, row_lengths)
    across_count = across.counts[row % width]
    down_count = down.counts[row // width]
    ordinal, right = np.divmod(ordinal, across_count)
    plane, below = np.divmod(ordinal, down_count)
    below += down.starts[row // width]
    right += across.starts[row % width]
    return WindowEntries(
        row_lengths,
        plane,
        down.outputs[below] * horizontal.outputs + across.outputs[right],
        down.taps[below] * horizontal.kernel + across.taps[right],
    )


def plane_pattern(geometry: Pool2dGeometry) -> Pattern:
    """The pattern of a pooling: each plane's windows, one block of the diagonal a channel."""
    window = window_entries(*geometry.axes)
    channels = np.arange(geometry.channels)[:, None]
    out_plane = int(np.prod(geometry.out_size))
    shape = (geometry.channels * window.row_lengths.size, geometry.channels * out_plane)
    dtype = index_dtype(max(geometry.channels * window.output.size, *shape))
    indices = window.output.astype(dtype) + (channels * out_plane).astype(dtype)
    indptr = np.concatenate([[0], np.cumsum(np.tile(window.row_lengths, geometry.channels))])
    return Pattern(shape, indptr, indices.reshape(-1))
