"""One rank's part of a network's parameters, of their gradients, and of its buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.distributed.group import Group
from bppsa_cupy.network.parameters import ALIGNMENT, BufferSet, ParameterSet, lay_out
from bppsa_cupy.plan import Partition

Shapes = Mapping[str, tuple[int, ...]]


class RankParameters(ParameterSet):
    """The arrays that this rank holds, by the network's names.

    shapes  of all of the network's arrays, by name
    owners  the rank of each, by name, which does not fall in the order of the names

    Law: the ranks' `flat` arrays, one after another, are that of one process. `to_host`, `gathered`,
    `of_all_ranks`, `units_of_all_ranks` and `set_where_any` are collective: every rank calls them, in the
    same order.
    """

    def __init__(self, group: Group, dtype: np.dtype, shapes: Shapes, owners: Mapping[str, int]) -> None:
        by_rank: list[dict[str, tuple[int, ...]]] = [{} for _ in range(group.size)]
        for name, shape in shapes.items():
            by_rank[owners[name]][name] = shape
        super().__init__(group.device, dtype, by_rank[group.rank])
        self._group = group
        self._whole, self._count = lay_out(dtype, shapes)
        self._rows = [lay_out(dtype, shapes_of_rank)[1] for shapes_of_rank in by_rank]
        start = sum(self._rows[: group.rank])
        self._own = slice(start, start + self._rows[group.rank])

    @property
    def ranks(self) -> RankParameters:
        return self

    @property
    def names(self) -> list[str]:
        """The names of all of the network's arrays, in their order."""
        return list(self._whole)

    def set_masks(self, masks: Mapping[str, np.ndarray], listed: Mapping[str, np.ndarray]) -> None:
        super().set_masks({name: mask for name, mask in masks.items() if name in self}, {})

    def assign(self, arrays: Mapping[str, Any]) -> None:
        super().assign({name: array for name, array in arrays.items() if name in self})

    def to_host(self) -> dict[str, np.ndarray]:
        gathered = self.gathered(self.flat)
        return {name: gathered[span].reshape(shape).copy() for name, (span, shape) in self._whole.items()}

    def gathered(self, flat: Array) -> np.ndarray:
        """A host copy of an array laid out as `flat`, over all of the network's parameters."""
        result = np.empty(self._count, self.flat.dtype)
        self._group.allgather(np.ascontiguousarray(self.device.to_host(flat)), result, self._rows)
        return result

    def own_part(self, array: np.ndarray) -> np.ndarray:
        """Return this rank's part of an array over all parameters of the network."""
        return array[self._own] if array.shape == (self._count,) else array

    def of_all_ranks(self, value: Array) -> Array:
        """(ranks, …) a small array of each rank, in rank order."""
        every = self.device.empty((self._group.size, *value.shape), value.dtype)
        self._group.allgather(self.device.xp.ascontiguousarray(value[None]), every)
        return every

    def units_of_all_ranks(self, values: Array) -> Array:
        """(units,) a value of each unit of `flat`, of all of the network's units in their order."""
        rows = [count * self.dtype.itemsize // ALIGNMENT for count in self._rows]
        every = self.device.empty((sum(rows), *values.shape[1:]), values.dtype)
        self._group.allgather(self.device.xp.ascontiguousarray(values), every, rows)
        return every

    def set_where_any(self, flag: Array) -> None:
        """Set a flag, (1,) int32, where it is set on any rank."""
        flag[...] = self.of_all_ranks(flag).max(axis=0)


class RankBuffers(BufferSet):
    """The buffers that this rank holds, by the network's names.

    initial  all of the network's buffers, by name
    owners   the rank of each, by name

    `to_host` is collective: every rank calls it, in the same order.
    """

    def __init__(
        self,
        group: Group,
        dtype: np.dtype,
        initial: Mapping[str, np.ndarray],
        owners: Mapping[str, int],
    ) -> None:
        owned = {name: value for name, value in initial.items() if owners[name] == group.rank}
        super().__init__(group.device, dtype, owned)
        self._group, self._initial, self._owners = group, initial, owners

    def to_host(self) -> dict[str, np.ndarray]:
        owned, dtype = super().to_host(), self.dtype
        result = {}
        for name, value in self._initial.items():
            kind = np.dtype(np.int64) if value.dtype.kind == "i" else dtype
            array = result[name] = owned[name] if name in owned else np.empty(value.shape, kind)
            flat = np.atleast_1d(array)
            self._group.broadcast(flat, self._owners[name])
            result[name] = flat.reshape(value.shape)
        return result


def owners_by_layer(partition: Partition, names: Iterable[str]) -> dict[str, int]:
    """The rank of each array, "<layer>.<name>", by a partition of the layers."""
    return {name: int(partition.owners[int(name.partition(".")[0])]) for name in names}
