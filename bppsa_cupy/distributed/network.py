"""A network whose layers lie on several ranks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.devices import Array, Launch
from bppsa_cupy.distributed.batch_network import BatchSequential
from bppsa_cupy.distributed.group import Group
from bppsa_cupy.distributed.shared import SharedSequential
from bppsa_cupy.distributed.time_network import TimeSequential
from bppsa_cupy.errors import DistributedError, PlanError
from bppsa_cupy.layers.stack import backward_input_first
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.passes import Pass, through
from bppsa_cupy.network.run_scans import RunScans
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan import Partition, Plan

#: The tags of activations and of gradients between layers, below `scan.numeric.FIRST_TAG`.
FORWARD, BACKWARD = 0, 1
#: The length of sequences where a network leaves it open.
STEPS = 100


def distribute(
    network: Sequential,
    group: Group,
    partition: Partition | None = None,
    *,
    over: str = "layers",
    chunk: int | None = None,
    micro_batch: int | None = None,
) -> RankSequential | TimeSequential | BatchSequential:
    """Distribute a network over ranks.

    Parameters
    ----------
    network : Sequential
        The network, which must be the same on every rank (same seed or state). It is not changed.
    group : Group
        The ranks.
    partition : Partition, optional
        For over="layers", the layers of each rank. By default the multiply-adds of the parts are about equal.
    over : {"layers", "time", "batch"}, default: "layers"
        The quantity that is split: the layers, with their activations and Jacobians; the time steps; or the
        samples. Each rank stores all parameters.
    chunk : int, optional
        For over="time", the number of time steps per chunk. Default: one chunk per rank.
    micro_batch : int, optional
        For over="batch", the number of samples per micro-batch. The gradients of micro-batches are summed. If
        given, the sum is bit-identical for any number of ranks. By default each rank processes its samples as
        one micro-batch.

    Returns
    -------
    RankSequential, TimeSequential or BatchSequential
        Use it like a Sequential. All ranks must make the same calls in the same order.

    Raises
    ------
    DistributedError
        If arguments differ between ranks or do not belong to `over`, the group has another device than the
        network, or the network cannot be split over time.
    PlanError
        If the partition does not cover the layers.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(3, 2)], input_shape=(3,), device="host")
    >>> net = bp.distribute(net, bp.Group(device="host"), over="batch")  # doctest: +SKIP
    """
    if over not in ("layers", "time", "batch"):
        raise DistributedError(f"over={over!r} is unknown: use 'layers', 'time' or 'batch'")
    for name, value, needed in (
        ("partition", partition, "layers"),
        ("chunk", chunk, "time"),
        ("micro_batch", micro_batch, "batch"),
    ):
        if value is not None and over != needed:
            raise DistributedError(
                f"distribute got {name}={value!r} and over={over!r}: omit {name}, or pass over={needed!r}"
            )
    if over == "batch":
        return BatchSequential(network, group, micro_batch)
    if over == "time":
        return TimeSequential(
            network, group, None if chunk is None else as_integer("distribute", "chunk", chunk, 1)
        )
    if partition is None:
        partition = Partition.balanced(layer_multiply_adds(network.architecture), group.size)
    return RankSequential(network, group, partition)


def layer_multiply_adds(architecture: Architecture) -> np.ndarray:
    """(layers,) multiply-adds of a training step of one sample: a forward pass and a VJP take as many as the
    Jacobian has entries, and so do the gradients of a layer with parameters."""
    counts = np.zeros(len(architecture.layers))
    for index, layer in enumerate(architecture.layers):
        weights = sum(map(math.prod, layer.parameter_shapes().values()))
        shape = tuple(STEPS if size is None else size for size in architecture.shapes[index])
        jacobian = architecture.jacobians[index]
        terms = layer.vjp_multiply_adds(shape)
        if terms is None:
            # A layer without a Jacobian is recurrent, and uses its weights at each step, or reshapes.
            terms = jacobian.pattern.nnz if jacobian is not None else weights * shape[0]
        counts[index] = terms * (3 if weights else 2)
    return counts


class RankSequential(SharedSequential):
    """The layers of one rank of a network, with the interface of Sequential. Created by `distribute`.

    Every rank calls `forward`, `backward`, `use`, `state_dict`, the optimizer's `step` and its `state_dict`
    with the same arguments, in the same order; `forward` returns the output on every rank. A rank computes
    the layers `held`, and stores their activations. After `backward`, every rank holds all gradients. Initial
    values, dropout masks and gradients are bit-identical to those of one process.
    """

    def __init__(self, network: Sequential, group: Group, partition: Partition) -> None:
        partition.check(len(network), group.size, "layers")
        super().__init__(network, group, partition=partition.bounds)
        self.partition, self.held = partition, partition.part(group.rank)
        self._holders = [rank for rank in range(group.size) if partition.part(rank)]
        self._names = [self._names_of(self.parameters, rank) for rank in range(group.size)]

    def _names_of(self, names: Iterable[str], rank: int) -> list[str]:
        """Those of the names that belong to layers of a rank."""
        return [name for name in names if int(name.partition(".")[0]) in self.partition.part(rank)]

    def plan(
        self, levels: str | int = "auto", workers: int | None = None, batch_size: int = 256, **options: Any
    ) -> Plan:
        """`Sequential.plan` for this partition: every rank makes the same plan, or loads it from a file."""
        return super().plan(levels, workers, batch_size, **{"partition": self.partition, **options})

    def use(self, plan: Plan) -> None:
        if plan.partition is not None and plan.partition != self.partition:
            raise PlanError(
                f"the plan is for the partition {plan.partition.bounds}, but the network was distributed "
                f"with {self.partition.bounds}: call distribute(net, group, plan.partition), or build the "
                "plan again"
            )
        over = self.group, self.partition
        scans = RunScans(self.architecture, plan, self.device, self.dtype, over)
        tables = (chain.schedules[name].table for name in plan.schedules for chain in plan.chains)
        steps = [hashlib.sha256(table.tobytes()).hexdigest() for table in tables]
        self.group.agree(plan=(plan.fingerprint, plan.batch_size, plan.schedules, steps))
        self._scans = scans

    def state_dict(self) -> dict[str, np.ndarray]:
        self.gather_buffers(self._names_of(self.buffers, self.group.rank))
        return super().state_dict()

    def _through(self, current: Pass, x: Array) -> Array:
        """This rank's layers, between the ranks before and after; the output, on every rank."""
        group, layers = self.group, self.held
        if not self._holders:
            return x
        group.finish()
        y = x
        if layers:
            place = self._holders.index(group.rank)
            if place > 0:
                y = current.layers[layers.start].buffer("received_input", current.shape_at(layers.start))
                group.receive(y, self._holders[place - 1], FORWARD)
            y = through(current, y, layers, self.training, self.random_state)
            if place + 1 < len(self._holders):
                group.isend(self.device.xp.ascontiguousarray(y), self._holders[place + 1], FORWARD)
        last = self._holders[-1]
        if group.rank != last:
            y = current.layers[-1].buffer("received_output", current.shape_at(len(self)))
        y = self.device.xp.ascontiguousarray(y)
        group.broadcast(y, last)
        return y

    def _go_back(self, current: Pass, gradient: Array, method: str, input_gradient: bool) -> Array | None:
        """Every rank goes back through all layers in the same order, and computes at its layers. The gradient
        for the next rank leaves first; parameter gradients that share no work with it follow."""
        group, owners, architecture = self.group, self.partition.owners.tolist(), current.architecture
        later: list[Launch] = []
        # With respect to the input of the layer passed last, on the rank `holder`; None: on all ranks.
        result: Array | None = gradient
        holder: int | None = None

        def move_to(index: int, boundary: int) -> None:
            """Bring the gradient by the input of layer `boundary` to the rank of layer `index`."""
            nonlocal result, holder
            source, holder = holder, owners[index]
            if source in (None, holder):
                return
            if group.rank == source:
                group.isend(self.device.xp.ascontiguousarray(result), holder, BACKWARD)
            elif group.rank == holder:
                result = current.layers[index].buffer("received_gradient", current.shape_at(boundary))
                group.receive(result, source, BACKWARD)

        for part, layers in architecture.back():
            scans = None if part is None or method == "bp" else self._scans_of(part, method)
            if part is not None and scans is not None:
                if architecture.wants(part.stop, input_gradient):
                    move_to(part.elements[0], part.stop)
                    wanted = architecture.wants(part.start, input_gradient)
                    result = scans.back_through(part, current, result, method, wanted)
                    holder = owners[part.elements[-1]]
                continue
            for index in reversed(layers):
                if not architecture.wants(index + 1, input_gradient):
                    break
                move_to(index, index + 1)
                if holder == group.rank:
                    layer, ctx = architecture.layers[index], current.layers[index]
                    current.output_gradients[index] = result
                    wanted = architecture.wants(index, input_gradient)
                    result = backward_input_first(layer, ctx, result, wanted, later)
        for write in later:
            write()
        self.gather(self.gradients.flat, self._names)
        if not input_gradient or holder is None:
            return result if input_gradient else None
        if group.rank != holder:
            result = current.layers[0].buffer("received_input_gradient", current.shape_at(0))
        result = self.device.xp.ascontiguousarray(result)
        group.broadcast(result, holder)
        return result
