"""Networks that ranks share: every rank holds all parameters, gradients and buffers."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.distributed.group import Group
from bppsa_cupy.errors import DistributedError
from bppsa_cupy.network.sequential import Sequential


class SharedSequential(Sequential):
    """A network that ranks share. Every rank calls the same methods with the same arguments, in the same
    order.

    Parameters
    ----------
    network : Sequential
        The network, which is copied.
    group : Group or None
        The ranks. None for one process: the result shares the arrays of the network.
    **agreed
        Values that are equal on all ranks.

    Raises
    ------
    DistributedError
        If the networks, versions or `agreed` values differ between ranks, or the group has another device.
    """

    group: Any

    def __init__(self, network: Sequential, group: Group | None, **agreed: object) -> None:
        if group is not None:
            if network.device is not group.device:
                raise DistributedError(
                    f"the network is on {network.device!r}, but the group is on {group.device!r}: create the "
                    "network with device=group.device"
                )
            group.agree(
                network=network.describe(),
                dtype=network.dtype.name,
                random_state=network.random_state,
                versions=(version("bppsa-cupy"), np.__version__),
                **agreed,
            )
            network = copy.copy(network)
        vars(self).update(vars(network), group=group, last_pass=None, last_backward=None)

    @property
    def writes(self) -> bool:
        return self.group is None or bool(self.group.rank == 0)

    def on_any_rank(self, flag: bool) -> bool:
        return flag if self.group is None else bool(self.group.any(flag))

    def gather(self, flat: Array, names: Sequence[Sequence[str]]) -> None:
        """Fill an array laid out as the parameters; rank r has the values of `names[r]`. Collective."""
        parts = [self.parameters.layout.part_of(names_of_rank) for names_of_rank in names]
        sizes = [part.stop - part.start for part in parts]
        self.group.allgather(flat[parts[self.group.rank]].copy(), flat, sizes)

    def gather_buffers(self, names: Iterable[str]) -> None:
        """Give the buffers of these names to all ranks, and receive those of the others. Collective."""
        arrays = self.buffers.to_host()
        for part in self.group.gather({name: arrays[name] for name in names}):
            self.buffers.assign(self.buffers.converted(part))
