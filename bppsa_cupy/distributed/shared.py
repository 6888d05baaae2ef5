"""Networks over ranks, and the parameters, gradients and buffers of which each rank holds a part."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.distributed.group import Group
from bppsa_cupy.errors import DistributedError
from bppsa_cupy.network.parameters import ALIGNMENT, BufferSet, ParameterSet, lay_out, load_state
from bppsa_cupy.network.sequential import Sequential


def agree_on(network: Sequential, group: Group, **agreed: object) -> None:
    """Raise DistributedError where the ranks' networks or versions differ, or what is `agreed`, or the group
    has another device than the network; collective."""
    if network.device is not group.device:
        raise DistributedError(
            f"the network is on {network.device!r}, but the group is on {group.device!r}: create the network "
            "with device=group.device"
        )
    group.agree(
        network=network.describe(),
        dtype=network.dtype.name,
        random_state=network.random_state,
        versions=(version("bppsa-cupy"), np.__version__),
        **agreed,
    )


class SharedSequential(Sequential):
    """A network that ranks share. Every rank calls the same methods with the same arguments, in the same
    order.

    The constructor fills the parameters and buffers of this rank from those of the network. It raises
    DistributedError if the networks or the values `agreed` differ between ranks, or the group has another
    device.
    """

    _stores_kept = False

    def __init__(
        self, network: Sequential, group: Group, owners: Mapping[str, int] | None, **agreed: object
    ) -> None:
        """`owners` is the rank of each parameter and buffer, by name. Without it, every rank holds all."""
        agree_on(network, group, **agreed)
        self.group, self._architecture = group, network.architecture
        self.dtype, self.device = network.dtype, network.device
        self.training, self.random_state = network.training, dict(network.random_state)
        self.last_pass, self.last_backward = None, None
        shapes, initial = network.architecture.parameter_shapes(), network.architecture.initial_buffers()
        if owners is None:
            arrays = [ParameterSet(self.device, self.dtype, shapes) for _ in range(2)]
            self.buffers = BufferSet(self.device, self.dtype, initial)
        else:
            arrays = [RankParameters(group, self.dtype, shapes, owners) for _ in range(2)]
            self.buffers = RankBuffers(group, self.dtype, initial, owners)
        self.parameters, self.gradients = arrays
        self.parameters.set_masks(self.architecture.masks, {})
        load_state(self.parameters, self.buffers, network.state_dict())

    @property
    def writes(self) -> bool:
        return self.group.rank == 0

    def on_any_rank(self, flag: bool) -> bool:
        return self.group.any(flag)

    def __reduce__(self) -> tuple[Any, ...]:
        raise DistributedError(
            "a distributed network cannot be copied or pickled: load its state_dict() into a Sequential"
        )


# ---- a part of the arrays of a network ----


class RankParameters(ParameterSet):
    """The arrays that this rank holds, by the names of the network.

    `shapes` and `owners` give the shape and the rank of every array of the network, by name. Ranks do not
    decrease in the order of the names.

    Law: the `flat` arrays of the ranks, one after another, are that of one process. `to_host`, `gathered`,
    `of_all_ranks`, `units_of_all_ranks` and `set_where_any` are collective: every rank calls them, in the
    same order.
    """

    def __init__(
        self, group: Group, dtype: np.dtype, shapes: Mapping[str, tuple[int, ...]], owners: Mapping[str, int]
    ) -> None:
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
    """The buffers that this rank holds, by the names of the network.

    `initial` and `owners` give the initial value and the rank of every buffer of the network, by name.
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
        self._group, self._names = group, list(initial)

    def to_host(self) -> dict[str, np.ndarray]:
        arrays = {
            name: array for part in self._group.gather(super().to_host()) for name, array in part.items()
        }
        return {name: arrays[name] for name in self._names}
