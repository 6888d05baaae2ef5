"""A network whose layers lie on several ranks."""

from __future__ import annotations

import re
from typing import Any

from bppsa_cupy.arguments import as_instance, as_integer, is_one_of
from bppsa_cupy.devices import Array
from bppsa_cupy.distributed.backward import FORWARD, RankBackward, RankScans
from bppsa_cupy.distributed.balance import layer_multiply_adds
from bppsa_cupy.distributed.batch_network import BatchSequential
from bppsa_cupy.distributed.group import Group
from bppsa_cupy.distributed.parameters import RankBuffers, RankParameters, owners_by_layer
from bppsa_cupy.distributed.shared import SharedSequential
from bppsa_cupy.distributed.time_network import TimeSequential
from bppsa_cupy.errors import DistributedError
from bppsa_cupy.layers import Context
from bppsa_cupy.network.forward import through
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan import Partition, Plan


def distribute(
    network: Sequential,
    group: Group,
    partition: Partition | None = None,
    *,
    over: str = "layers",
    chunk: int | None = None,
    micro_batch: int | None = None,
    sync_batch_norm: bool = False,
) -> RankSequential | TimeSequential | BatchSequential:
    """A network over ranks.

    network    every rank gives the same one, of the same seed or state; it is left as it is, and may be
               dropped
    over       "layers": each rank holds parameters, activations, Jacobians and gradients of its own layers;
               "time": each holds all parameters, and activations of its own steps of the sequences;
               "batch": each holds all parameters, and activations of its own samples;
               "batch:R,layers:C", or "batch:R,time:C": R rows of C ranks, rank = row C + column; the rows
               share each batch, the ranks of a row layers or steps
    partition  which layers each rank owns; by default parts of about equal multiply-adds. Ranks beyond the
               layers hold nothing and run along
    chunk      over time, steps that are reduced together; by default one chunk per rank
    micro_batch  over the batch, samples whose gradients are one term of the sum, which is the same for any
               number of ranks: a rank takes whole ones. By default a rank's part of each batch
    sync_batch_norm  over the batch, whether batch normalisation takes the statistics of the whole batch, by
               three sums over the ranks a layer, in place of those of a rank's part

    Collective. Raises DistributedError where what the ranks give differs, the group has another device, or
    the network cannot be split over time, and PlanError where the partition does not cover the layers.
    """
    as_instance("distribute", "a network", network, Sequential, "a Sequential", error=DistributedError)
    as_instance("distribute", "a group", group, Group, "a bp.Group", error=DistributedError)
    if isinstance(over, str) and ":" in over:
        _, columns, inside = read_grid(over, group.size)
        row, column = group.split(group.rank // columns), group.split(group.rank % columns)
        assert row is not None and column is not None
        inner = distribute(network, row, partition, over=inside, chunk=chunk)
        return BatchSequential(inner, column, micro_batch, sync_batch_norm=sync_batch_norm)
    if not is_one_of(over, ["layers", "time", "batch"]):
        raise DistributedError(
            f"over={over!r} was asked for: ranks share 'layers', 'time' or the 'batch', or both as "
            "'batch:2,layers:3'"
        )
    for name, value, of, what in (
        ("a partition", partition, "layers", "layers"),
        ("a chunk", chunk, "time", "steps"),
        ("a micro-batch", micro_batch, "batch", "samples"),
        ("sync_batch_norm", sync_batch_norm or None, "batch", "the batch's statistics"),
    ):
        if value is not None and over != of:
            raise DistributedError(f"{name} is of {what}: leave it out with over={over!r}")
    if over == "batch":
        return BatchSequential(network, group, micro_batch, sync_batch_norm=sync_batch_norm)
    if over == "time":
        return TimeSequential(
            network, group, None if chunk is None else as_integer("distribute", "chunk", chunk, 1)
        )
    if partition is None:
        partition = Partition.balanced(layer_multiply_adds(network.architecture), group.size)
    return RankSequential(network, group, partition)


def read_grid(text: str, size: int) -> tuple[int, int, str]:
    """Rows, columns, and what the ranks of a row share, of a grid as "batch:2,layers:3". Raises
    DistributedError where it is none, or not one of so many ranks."""
    found = re.fullmatch(r"batch:([1-9]\d*),(layers|time):([1-9]\d*)", text)
    if found is None:
        raise DistributedError(f"over={text!r} was asked for: a grid is given as 'batch:2,layers:3'")
    rows, columns = int(found[1]), int(found[3])
    if rows * columns != size:
        raise DistributedError(
            f"{text!r} is a grid of {rows} x {columns} = {rows * columns} ranks and the group has {size}: "
            f"start {rows * columns}"
        )
    return rows, columns, found[2]


class RankSequential(SharedSequential):
    """One rank's layers of a network, with the interface of Sequential; made by `distribute`.

    Every rank calls `forward`, `backward`, `use`, `state_dict`, the optimizer's `step` and its `state_dict`
    with the same arguments, in the same order; `forward` returns the output on every rank. `parameters`
    and `gradients` are those of the own layers, by the names of the whole network; `state_dict` is whole.
    Initial values, and the draws of Dropout, are those of one process, and so are the bits of gradients.

    group, partition  as `distribute` took them
    own               the layers of this rank
    """

    def __init__(self, network: Sequential, group: Group, partition: Partition) -> None:
        partition.check(len(network), group.size, "layers")
        shapes, dtype = network.architecture.parameter_shapes(), network.dtype
        initial = network.architecture.initial_buffers()
        owners = owners_by_layer(partition, (*shapes, *initial))
        parameters, gradients = (RankParameters(group, dtype, shapes, owners) for _ in range(2))
        buffers = RankBuffers(group, dtype, initial, owners)
        backward = RankBackward(group, partition)
        super().__init__(network, group, parameters, gradients, buffers, backward, partition=partition.bounds)
        self.partition, self.own = partition, partition.part(group.rank)
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
        """This rank's layers, between the ranks before and after; the output, on every rank."""
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
