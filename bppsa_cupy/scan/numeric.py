"""The numeric scan: multiplies and adds through a plan's maps, into buffers taken once. Of one
device, and the part of one rank."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import (
    ChainPlan,
    MemoryPlan,
    Message,
    Schedule,
    Segment,
    Step,
    memory_plan,
    place,
    rank_memory_plan,
)
from bppsa_cupy.scan.launches import IndexMaps, Matrix, bind_product, bind_spmv

#: Batch sizes whose bound launches, on CUDA a graph each, are kept; the one that was met first goes first.
MAXIMAL_RUNS = 64


class NumericScan:
    """One schedule over one planned chain, for batches up to `capacity`.

    A schedule with VJPs takes `cross` at each run, which is called with k where v(k + 1) is due by the VJP of
    the layer of a_k. Launches read the v(k) of `vectors_read` alone: `cross` writes such a v(k + 1), and may
    keep others where it likes.

    Use: write the values of every element in `elements_read` into `element(k, batch)` and the gradient
    into `vector(1, batch)`, call `run_batch(batch)`, read `vector(k, batch)` for k = 1, …, n (and n + 1 where
    the schedule computes it): v(k), the gradient with respect to the output of the layer of a_k, batch
    innermost. Every run needs all values anew: buffers are shared by liveness and written over.

    Law: all memory is taken in the constructor and at the first run of each batch size; later runs
    allocate nothing and look at no pattern. Raises DeviceError where the device has too little memory.

    Parameters
    ----------
    affine : bool, default: False
        Whether `injection(k, batch)` is added after element k: v(k + 1) = a_k v(k) + e_k.
    """

    def __init__(
        self,
        device: Device,
        dtype: np.dtype,
        chain_plan: ChainPlan,
        schedule: Schedule,
        capacity: int,
        maps: IndexMaps | None = None,
        affine: bool = False,
    ) -> None:
        self.device, self.dtype = device, np.dtype(dtype)
        self.chain_plan, self.schedule = chain_plan, schedule
        self.capacity, self.affine = capacity, affine
        self.maps = maps or IndexMaps(device)
        self.memory = self._memory_plan(capacity)
        self._arena = device.empty((self.memory.total_bytes // self.dtype.itemsize,), self.dtype)
        self._injected: dict[Segment, Array] = {}
        if affine:  # memory for the injected vector of every element and every product
            products = [step.out for step in schedule.steps if step.kind == "mm"]
            for begin, end in [*((k, k + 1) for k in range(1, schedule.n + 1)), *products]:
                length = chain_plan.chain.length(end)
                self._injected[begin, end] = device.empty(length * capacity, self.dtype)
        self._runs: dict[int, list[Callable[[], Any] | int]] = {}

    @property
    def owned(self) -> Sequence[int]:
        """The elements whose v(k) this process reads after a run."""
        return range(1, self.schedule.n + 1)

    @cached_property
    def elements_read(self) -> frozenset[int]:
        """The elements whose values the schedule reads; the others need not be filled."""
        steps = [step for step in self.schedule.steps if step.kind != "vjp"]
        operands = [segment for step in steps for segment in (step.left, step.right)]
        return frozenset(begin for begin, end in operands if begin >= 1 and end == begin + 1)

    @cached_property
    def vectors_read(self) -> frozenset[int]:
        """The k of the v(k) that matrices are multiplied by."""
        return frozenset(step.split for step in self.schedule.steps if step.kind == "mv")

    def element(self, k: int, batch: int) -> Array:
        """Return the array for the values of element k: (nnz,) if it is shared, else (nnz, batch)."""
        return self._matrix((k, k + 1), batch).values

    def vector(self, k: int, batch: int) -> Array:
        """v(k), (d, batch): k = 1 is written before a run, the others are read after it."""
        self._check_batch(batch)
        offset = self.memory.offsets[0, k][0]
        return _view(self._arena, offset, self.chain_plan.chain.length(k), batch)

    def injection(self, k: int, batch: int) -> Array:
        """e_k, (d, batch), added after element k; written before a run of an affine scan."""
        return self._affine_vector((k, k + 1), batch)

    def run_batch(self, batch: int, cross: Callable[[int], None] | None = None) -> None:
        """Compute every v(k) of the schedule from the element values and v(1)."""
        if batch not in self._runs:
            self._check_batch(batch)
            if len(self._runs) >= MAXIMAL_RUNS:
                del self._runs[next(iter(self._runs))]
            self._runs[batch] = self._parts(batch)
        for part in self._runs[batch]:
            if isinstance(part, int):
                assert cross is not None
                cross(part)
            else:
                part()

    def _parts(self, batch: int) -> list[Callable[[], Any] | int]:
        """The calls of a run between VJPs, and the elements that VJPs cross."""
        parts: list[Callable[[], Any] | int] = []
        for crossed, steps in groupby(self.schedule.steps, key=lambda step: step.kind == "vjp"):
            if crossed:
                parts += [step.split for step in steps]
            else:
                launches = [launch for step in steps for launch in self._bind_step(step, batch)]
                parts.append(self.device.sequence(launches))
        return parts

    # ---- views of the arena ----

    def _memory_plan(self, batch: int) -> MemoryPlan:
        return memory_plan(self.chain_plan, self.schedule, batch, self.dtype.itemsize)

    def _check_batch(self, batch: int) -> None:
        if batch > self.capacity:
            layout = self._memory_plan(batch)
            raise PlanError(
                f"the batch has {batch} samples, but the plan is for at most {self.capacity}: build a plan "
                f"with batch_size={batch}, which needs {layout.total_bytes} bytes"
            )

    def _matrix(self, segment: Segment, batch: int) -> Matrix:
        self._check_batch(batch)
        pattern = self.chain_plan.pattern(segment)
        columns = () if self.chain_plan.chain.shared(*segment) else (batch,)
        return Matrix(pattern, _view(self._arena, self.memory.offsets[segment][0], pattern.nnz, *columns))

    def _affine_vector(self, segment: Segment, batch: int) -> Array:
        self._check_batch(batch)
        return _view(self._injected[segment], 0, self.chain_plan.chain.length(segment[1]), batch)

    # ---- launches ----

    def _bind_step(self, step: Step, batch: int) -> list[Launch]:
        right = self._matrix(step.right, batch)
        addend = self._affine_vector(step.right, batch) if self.affine else None
        if step.kind == "mv":
            x, y = self.vector(step.split, batch), self.vector(step.end, batch)
            return [bind_spmv(self.device, self.maps, right, x, addend, y)]
        left = self._matrix(step.left, batch)
        product = self.chain_plan.product(step)
        out = self._matrix(step.out, batch).values
        launches = [bind_product(self.device, self.maps, product, right, left, out, batch)]
        if self.affine:
            x, y = self._affine_vector(step.left, batch), self._affine_vector(step.out, batch)
            launches.append(bind_spmv(self.device, self.maps, right, x, addend, y))
        return launches


def _view(arena: Array, start: int, *shape: int) -> Array:
    """The values of an arena from `start` on as an array of `shape`."""
    return arena[start : start + math.prod(shape)].reshape(shape)


#: The first tag of the messages of a scan. Its callers use the tags below.
FIRST_TAG = 2


class RankScan(NumericScan):
    """The part of one rank in a schedule over a planned chain, for batches up to `capacity`.

    Every rank makes this scan and calls `run_batch` equally often:

    1. Write the values of the elements in `elements_read` into `element(k, batch)`. This rank owns them all.
    2. If this rank owns a_1, write the gradient into `vector(1, batch)`.
    3. Call `run_batch(batch)`.
    4. Read `vector(k, batch)` for every owned k. The owner of a_n also reads n + 1, the input gradient.

    Parameters
    ----------
    group : Group
        The ranks.
    owners : array of int, shape (n,)
        The rank of a_1, …, a_n. Each rank owns contiguous elements.

    Notes
    -----
    The bits equal those of `NumericScan` with the same schedule. Before the steps of a level, a rank sends
    and receives the messages up to that level in the order that all ranks share, so no rank waits for ever.
    """

    def __init__(
        self,
        group: Any,
        owners: Sequence[int] | np.ndarray,
        device: Device,
        dtype: np.dtype,
        chain_plan: ChainPlan,
        schedule: Schedule,
        capacity: int,
        maps: IndexMaps | None = None,
    ) -> None:
        self.group, self.placement = group, place(schedule, owners, group.size)
        steps = self.placement.schedule.steps
        self._steps = [steps[position] for position in self.placement.steps_of(group.rank)]
        self._messages = [
            (tag, message)
            for tag, message in enumerate(self.placement.messages(), FIRST_TAG)
            if group.rank in (message.source, message.target)
        ]
        super().__init__(device, dtype, chain_plan, schedule, capacity, maps)

    @cached_property
    def owned(self) -> list[int]:
        return (np.flatnonzero(self.placement.owners[1:] == self.group.rank) + 1).tolist()

    @cached_property
    def elements_read(self) -> frozenset[int]:
        """The elements of this rank whose values its steps read, or other ranks receive."""
        operands = [segment for step in self._steps for segment in (step.left, step.right)]
        operands += [message.segment for _, message in self._messages]
        owned = set(self.owned)
        return frozenset(begin for begin, end in operands if begin in owned and end == begin + 1)

    def _memory_plan(self, batch: int) -> MemoryPlan:
        return rank_memory_plan(self.chain_plan, self.placement, self.group.rank, batch, self.dtype.itemsize)

    def _parts(self, batch: int) -> list[Callable[[], Any] | int]:
        """Launches between messages."""
        parts: list[Callable[[], Any] | int] = []
        launches: list[Launch] = []
        waiting = deque(self._messages)

        def bind_launches() -> None:
            if launches:
                parts.extend((self.device.sequence(launches.copy()), self.group.progress))
                launches.clear()

        for step in self._steps:
            if waiting and waiting[0][1].level <= step.level:
                bind_launches()
            while waiting and waiting[0][1].level <= step.level:
                parts.append(self._bind_message(*waiting.popleft(), batch))
            launches += self._bind_step(step, batch)
        bind_launches()
        parts += [self._bind_message(tag, message, batch) for tag, message in waiting]
        return [*parts, self.group.finish]

    def _bind_message(self, tag: int, message: Message, batch: int) -> Callable[[], Any]:
        """A call that sends or receives a message."""
        begin, end = message.segment
        values = self._matrix(message.segment, batch).values if begin else self.vector(end, batch)
        if message.source == self.group.rank:
            return lambda: self.group.isend(values, message.target, tag)
        return lambda: self.group.receive(values, message.source, tag)
