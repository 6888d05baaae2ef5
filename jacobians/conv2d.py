"""The transposed Jacobian of a two-dimensional convolution (paper, algorithms 2 to 4, any geometry)."""

from __future__ import annotations

import numpy as np

from bppsa_cupy.csr import Pattern, index_dtype
from bppsa_cupy.geometry import Conv2dGeometry
from bppsa_cupy.jacobians.weights import WeightJacobian
from bppsa_cupy.jacobians.windows import WindowEntries, window_entries


class Conv2dJacobian(WeightJacobian):
    """Every valid tap of every weight: rows (in_channel, row, column), columns (out_channel, row, column).

    Parameters
    ----------
    mask : array or None, default: None
        A bool mask of the weight's shape, True where the weight may differ from 0. None means everywhere.
    """

    def __init__(self, geometry: Conv2dGeometry, mask: np.ndarray | None = None) -> None:
        super().__init__()
        self.geometry, self.mask = geometry, mask

    def bytes_to_make(self) -> int:
        geometry = self.geometry
        taps = [np.bincount(axis.taps().taps, minlength=axis.kernel) for axis in geometry.axes]
        pairs = np.outer(*taps).reshape(-1)  # of an input and an output, by the tap that connects them
        one_channel = int(pairs.sum()) * (geometry.out_channels // geometry.groups)
        if self.mask is None:
            entries = one_channel * geometry.in_channels
        else:
            entries = int(np.asarray(self.mask, bool).reshape(-1, pairs.size).sum(0) @ pairs)
        # The entries of one input channel are made first, then those of all channels from them; with a mask,
        # by a list of those it keeps.
        return max(80 * one_channel, (13 if self.mask is None else 21) * entries + 32 * one_channel)

    def make_entries(self) -> tuple[Pattern, np.ndarray]:
        geometry = self.geometry
        outputs_per_group, taps = geometry.out_channels // geometry.groups, int(np.prod(geometry.kernel_size))
        inputs_per_group = geometry.in_channels // geometry.groups
        in_plane, out_plane = int(np.prod(geometry.in_size)), int(np.prod(geometry.out_size))
        shape = (geometry.in_channels * in_plane, geometry.out_channels * out_plane)
        window = window_entries(*geometry.axes, repeats=outputs_per_group)
        # What one input channel of the first group sees; another channel or group adds a constant.
        column = window.plane * out_plane + window.output
        weight = window.plane * (inputs_per_group * taps) + window.tap

        entries_by_channel = self._kept(window, inputs_per_group, taps)
        counts = [window.tap.size if entries is None else entries.size for entries in entries_by_channel]
        ends = np.cumsum(counts)
        dtype = index_dtype(max(int(ends[-1]), *shape))
        column, weight = column.astype(dtype), weight.astype(np.int32)
        indices, positions = np.empty(ends[-1], dtype), np.empty(ends[-1], np.int32)
        indptr = np.zeros(shape[0] + 1, np.int64)
        row_ends = np.cumsum(window.row_lengths)
        for channel, entries in enumerate(entries_by_channel):
            group, inner = divmod(channel, inputs_per_group)
            span = slice(ends[channel] - counts[channel], ends[channel])
            columns, weights, channel_ends = column, weight, row_ends
            if entries is not None:
                columns, weights = column[entries], weight[entries]
                channel_ends = np.searchsorted(entries, row_ends)
            first_output = group * outputs_per_group
            np.add(columns, dtype(first_output * out_plane), out=indices[span])
            np.add(
                weights,
                np.int32(first_output * inputs_per_group * taps + inner * taps),
                out=positions[span],
            )
            rows = slice(channel * in_plane + 1, (channel + 1) * in_plane + 1)
            indptr[rows] = channel_ends + span.start
        return Pattern(shape, indptr, indices), positions

    def _kept(self, window: WindowEntries, inputs_per_group: int, taps: int) -> list[np.ndarray | None]:
        """For each input channel the positions in `window` that the mask keeps; None for all."""
        geometry = self.geometry
        if self.mask is None:
            return [None] * geometry.in_channels
        outputs_per_group = geometry.out_channels // geometry.groups
        masks = np.asarray(self.mask, bool).reshape(
            geometry.groups, outputs_per_group, inputs_per_group, taps
        )
        weight = window.plane * taps + window.tap
        return [
            np.flatnonzero(np.ascontiguousarray(masks[group, :, inner]).reshape(-1)[weight])
            for group in range(geometry.groups)
            for inner in range(inputs_per_group)
        ]
