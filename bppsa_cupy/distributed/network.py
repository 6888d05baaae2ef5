"""A network whose layers lie on several ranks."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.distributed.backward import FORWARD, RankBackward
from bppsa_cupy.distributed.balance import layer_seconds
from bppsa_cupy.distributed.group import Group
from bppsa_cupy.distributed.parameters import RankParameters
from bppsa_cupy.distributed.scans import RankScans
from bppsa_cupy.errors import DistributedError
from bppsa_cupy.layers import Context
from bppsa_cupy.network.buffers import BufferSet
from bppsa_cupy.network.forward import through
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan import Partition, Plan


def distribute(network: Sequential, group: Group, partition: Partition | None = None) -> RankSequential:
    """A network over ranks: each holds parameters, activations, Jacobians and gradients of its own layers.

    network    every rank gives the same one, of the same seed or state; it is left as it is, and may be
               dropped
    partition  which layers each rank owns; by default balanced by predicted seconds. Ranks beyond the
               layers hold nothing and run along

    Collective. Raises DistributedError where what the ranks give differs, or the group has another device,
    and PlanError where the partition does not cover the layers.
    """
    if partition is None:
        partition = Partition.balanced(layer_seconds(network.architecture, network.device.name), group.size)
    return RankSequential(network, group, partition)


class RankSequential(Sequential):
    """One rank's part of a network, with the interface of Sequential; made by `distribute`.

    Every rank calls `forward`, `backward`, `use`, `state_dict`, the optimizer's `step` and its `state_dict`
    with the same arguments, in the same order; `forward` returns the output on every rank. `parameters`
    and `gradients` are those of the own layers, by the names of the whole network; `state_dict` is whole.
    Initial values, and the draws of Dropout, are those of one process, and so are the bits of gradients.

    group, partition  as `distribute` took them
    own               the layers of this rank
    """

    def __init__(self, network: Sequential, group: Group, partition: Partition) -> None:
        partition.check(len(network), group.size, "layers")
        if network.device is not group.device:
            raise DistributedError(
                f"the network is on {network.device!r} and the group on {group.device!r}: make the network "
                "with device=group.device"
            )
        group.agree(
            network=network.describe(),
            dtype=network.dtype.name,
            partition=partition.bounds,
            random_state=network.random_state,
            versions=(version("bppsa-cupy"), np.__version__),
        )
        self.group, self.partition, self.own = group, partition, partition.part(group.rank)
        if network.buffers:
            raise DistributedError(
                f"the network has buffers, {next(iter(network.buffers))} among them: ranks hold parameters "
                "alone; run it in one process"
            )
        self._architecture, self.dtype, self.device = network.architecture, network.dtype, network.device
        self.buffers = BufferSet(self.device, self.dtype, {})
        self.training = network.training
        self.last_pass, self.last_backward = None, None
        shapes = self.architecture.parameter_shapes()
        self.parameters = RankParameters(group, partition, self.dtype, shapes)
        self.gradients = RankParameters(group, partition, self.dtype, shapes)
        self.parameters.set_masks(self.architecture.masks)
        self.parameters.assign(network.state_dict())
        self.random_state = dict(network.random_state)
        self._backward = RankBackward(group, partition)
        self._holders = [rank for rank in range(group.size) if partition.part(rank)]

    def plan(
        self, levels: str | int = "auto", workers: int | None = None, batch_size: int = 256, **options: Any
    ) -> Plan:
        """`Sequential.plan` for this partition: every rank makes the same plan, or loads it from a file."""
        return super().plan(levels, workers, batch_size, **{"partition": self.partition, **options})

    def use(self, plan: Plan) -> None:
        self._backward.scans = RankScans(
            self.group, self.partition, self.architecture, plan, self.device, self.dtype
        )

    def _contexts(self) -> list[Context]:
        """Contexts; those of other ranks' layers hold nothing."""
        return [
            self._context(index)
            if index in self.own
            else Context(self.device, self.dtype, {}, {}, {}, self.architecture.shapes[index])
            for index in range(len(self))
        ]

    def _through(self, current: Pass, x: Array) -> Array:
        """This rank's layers, between the ranks before and behind it; the output, on every rank."""
        group, own = self.group, self.own
        if not self._holders:
            return x
        group.finish()
        y = x
        if own:
            place = self._holders.index(group.rank)
            if place > 0:
                y = current.layers[own.start].buffer("received_input", current.shape_at(own.start))
                group.receive(y, self._holders[place - 1], FORWARD)
            y = through(current, y, own, self.training, self.random_state)
            if place + 1 < len(self._holders):
                group.isend(self.device.xp.ascontiguousarray(y), self._holders[place + 1], FORWARD)
        last = self._holders[-1]
        if group.rank != last:
            y = current.layers[-1].buffer("received_output", current.shape_at(len(self)))
        y = self.device.xp.ascontiguousarray(y)
        group.broadcast(y, last)
        return y

    def __reduce__(self) -> tuple[Any, ...]:
        raise DistributedError(
            "a network over ranks cannot be copied or pickled: load its state_dict() into a Sequential"
        )
