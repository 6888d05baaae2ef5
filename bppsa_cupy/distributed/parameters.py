"""One rank's part of a network's parameters, or of their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.distributed.group import Group
from bppsa_cupy.network.parameters import ParameterSet, lay_out
from bppsa_cupy.plan import Partition

Shapes = Mapping[str, tuple[int, ...]]


class RankParameters(ParameterSet):
    """The arrays of this rank's layers, by the network's names.

    shapes  of all of the network's arrays, by name: "<layer>.<name>"

    Law: the ranks' `flat` arrays, one behind another, are that of one process. `to_host`, `gathered`,
    `of_all_ranks` and `set_where_any` are collective: every rank calls them, in the same order.
    """

    def __init__(self, group: Group, partition: Partition, dtype: np.dtype, shapes: Shapes) -> None:
        by_rank: list[dict[str, tuple[int, ...]]] = [{} for _ in range(group.size)]
        for name, shape in shapes.items():
            by_rank[partition.owners[int(name.partition(".")[0])]][name] = shape
        super().__init__(group.device, dtype, by_rank[group.rank])
        self._group = group
        self._whole, self._count = lay_out(dtype, shapes)
        self._rows = [lay_out(dtype, own)[1] for own in by_rank]
        self._start = [0, *accumulate(self._rows)][group.rank]

    @property
    def names(self) -> list[str]:
        return list(self._whole)

    def set_masks(self, masks: Mapping[str, np.ndarray]) -> None:
        super().set_masks({name: mask for name, mask in masks.items() if name in self})

    def to_host(self) -> dict[str, np.ndarray]:
        whole = self.gathered(self.flat)
        return {name: whole[span].reshape(shape).copy() for name, (span, shape) in self._whole.items()}

    def gathered(self, flat: Array) -> np.ndarray:
        whole = np.empty(self._count, self.flat.dtype)
        self._group.allgather(np.ascontiguousarray(self.device.to_host(flat)), whole, self._rows)
        return whole

    def part(self, whole: np.ndarray) -> np.ndarray:
        if whole.shape != (self._count,):
            return whole
        return whole[self._start : self._start + self._rows[self._group.rank]]

    def of_all_ranks(self, value: Array) -> Array:
        every = self.device.empty((self._group.size, *value.shape), value.dtype)
        self._group.allgather(self.device.xp.ascontiguousarray(value[None]), every)
        return every

    def set_where_any(self, flag: Array) -> None:
        flag[...] = self.of_all_ranks(flag).max(axis=0)
