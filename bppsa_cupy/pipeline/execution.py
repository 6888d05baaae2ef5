"""The actions of a schedule at work: passes, messages, updates and the rows of the steps."""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from bppsa_cupy.data import Batch
from bppsa_cupy.data.dataset import counted_labels
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.distributed import Group, Handle
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.pipeline.placement import Placement
from bppsa_cupy.pipeline.schedules import BACKWARD, FORWARD, UPDATE, Action, PipelineSchedule
from bppsa_cupy.pipeline.stage import Parcel, Stage, StagePass
from bppsa_cupy.timescan.lengths import take_lengths
from bppsa_cupy.training.losses import cross_entropy
from bppsa_cupy.training.steps import Row, Work, not_finite

#: What a step that is not finite suggests.
CURE = "take fewer cuts, a lower learning rate or the schedule stale-1f1b"
#: Tags of ranks: reports; and from here on those of the arrays of activations and of gradients, in turn.
REPORTS, FIRST = 2, 3

#: Waits for an array that is on its way to the host.
Fetched = Callable[[], np.ndarray]
#: A parcel's kind, the stage that takes it, its batch and micro-batch.
Key = tuple[int, int, int, int]
#: An action, its batch being the number of the step from 1 over all epochs; when it began, when its input was
#: there, and when it ended: seconds of one clock for all ranks of a machine.
TraceRow = tuple[Action, float, float, float]


@dataclass
class Stash:
    """Copies of a stage's parameters at the updates that its passes alive went forward with.

    Attributes
    ----------
    values : array
        The stage's part of the network's parameters.
    updates : int
        The number of updates so far.
    """

    values: Array
    updates: int = 0
    _versions: dict[int, int] = field(default_factory=dict)
    _copies: dict[int, Array] = field(default_factory=dict)
    _free: list[Array] = field(default_factory=list)

    def forward(self, batch: int) -> None:
        """Note that a batch goes forward with the present values."""
        self._versions[batch] = self.updates

    @contextmanager
    def back(self, batch: int) -> Iterator[None]:
        """Let the parameters have, for a while, the values that a batch went forward with."""
        copy = self._copies.get(self._versions.pop(batch))
        if copy is None:
            yield
            return
        present = self._copy()
        self.values[...] = copy
        yield
        self.values[...] = present
        self._free.append(present)

    def update(self) -> None:
        """Copy the present values, which an update follows, if a pass needs them; drop what none needs."""
        needed = set(self._versions.values())
        for version in [version for version in self._copies if version not in needed]:
            self._free.append(self._copies.pop(version))
        if self.updates in needed:
            self._copies[self.updates] = self._copy()
        self.updates += 1

    def _copy(self) -> Array:
        copy = self._free.pop() if self._free else self.values.copy()
        copy[...] = self.values
        return copy


class StagePart:
    """A stage of this process, with what it keeps from one run to the next.

    Attributes
    ----------
    own
        The slice of `flat` with its parameters and gradients.
    free : list of StagePass
        Passes that are not alive.
    sum
        Sum of micro-batches' gradients.
    received : dict of int to array
        The arrays that gradients are received into.
    """

    def __init__(self, placement: Placement, number: int, network: Sequential) -> None:
        parameters = network.parameters
        arrays = parameters.arrays, network.gradients.arrays, parameters.masks, network.buffers
        self.stage = Stage(placement, number, network.device, network.dtype, *arrays)
        self.own = parameters.layout.part_of(placement.parameter_names[number])
        self.free: list[StagePass] = []
        self.sum: Array | None = None
        self.summed = 0
        self.stash: Stash | None = None
        self.received: dict[int, Array] = {}

    def add_gradients(self, flat: Array) -> None:
        """Add a micro-batch's gradients to the sum."""
        if self.sum is None:
            self.sum = flat[self.own].copy()
        elif self.summed:
            self.sum += flat[self.own]
        else:
            self.sum[...] = flat[self.own]
        self.summed += 1


class Local:
    """The messages between stages of one process."""

    def __init__(self) -> None:
        self._parcels: dict[Key, Parcel] = {}
        self._reports: dict[tuple[int, int], np.ndarray] = {}

    def put(self, kind: int, target: int, key: tuple[int, int], parcel: Parcel) -> None:
        """Hand a parcel to stage `target`. Its arrays may be written after it where `kind` is BACKWARD, and
        after the pass's backward action where it is FORWARD."""
        if kind == BACKWARD:
            parcel = tuple(array.copy() for array in parcel)
        self._parcels[(kind, target, *key)] = parcel

    def receive(self, kind: int, stage: int, key: tuple[int, int], into: Callable[[], Parcel]) -> Parcel:
        """Return the message for a stage. Between ranks it fills the arrays that `into` gives, and waits."""
        return self._parcels.pop((kind, stage, *key))

    def report(self, stage: int, batch: int, values: np.ndarray) -> None:
        """Tell the stage before of a batch: (2,) float64, its loss and whether an update was blocked."""
        self._reports[stage, batch] = values

    def receive_report(self, stage: int, batch: int) -> np.ndarray:
        """Return the message of the next stage about a batch."""
        return self._reports.pop((stage + 1, batch))

    def finish(self) -> None:
        """Return when all that was put has been taken."""


class Ranks(Local):
    """The same between ranks of a group, rank r with stage r. Sends do not wait."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._sending: deque[tuple[Array, Handle]] = deque()
        self._free: dict[tuple[int, ...], list[Array]] = defaultdict(list)

    def put(self, kind: int, target: int, key: tuple[int, int], parcel: Parcel) -> None:
        for index, array in enumerate(parcel):
            if kind == BACKWARD:
                array = self._copied(array)
            handle = self._group.isend(
                self._group.device.xp.ascontiguousarray(array), target, _tag(kind, index)
            )
            if kind == BACKWARD:
                self._sending.append((array, handle))

    def _copied(self, array: Array) -> Array:
        """A copy in a buffer whose last message is through."""
        while self._sending and self._sending[0][1].test():
            buffer, _ = self._sending.popleft()
            self._free[buffer.shape].append(buffer)
        free = self._free[array.shape]
        copy = free.pop() if free else self._group.device.empty(array.shape, array.dtype)
        copy[...] = array
        return copy

    def receive(self, kind: int, stage: int, key: tuple[int, int], into: Callable[[], Parcel]) -> Parcel:
        parcel = into()
        for index, array in enumerate(parcel):
            self._group.receive(array, stage - 1 if kind == FORWARD else stage + 1, _tag(kind, index))
        return parcel

    def report(self, stage: int, batch: int, values: np.ndarray) -> None:
        self._group.isend(values, stage - 1, REPORTS)

    def receive_report(self, stage: int, batch: int) -> np.ndarray:
        values = np.empty(2)
        self._group.receive(values, stage + 1, REPORTS)
        return values

    def finish(self) -> None:
        self._group.finish()


def _tag(kind: int, index: int) -> int:
    return FIRST + 2 * index + kind


class Run:
    """One run of a schedule on the stages that this process has: all of them, or one rank's.

    Parameters
    ----------
    parts : dict of int to StagePart
        The parts of this process, by stage.
    trace : list of TraceRow or None
        Takes a row of each action; None for no trace.
    """

    def __init__(
        self,
        network: Sequential,
        placement: Placement,
        parts: dict[int, StagePart],
        group: Group | None,
        trace: list[TraceRow] | None,
    ) -> None:
        self._network, self._placement, self._parts, self._trace = network, placement, parts, trace
        self._first, self._last = min(parts), len(placement.stages) - 1
        self._links = Local() if group is None or group.size == 1 else Ranks(group)
        self._rank = None if group is None else group.rank
        self._batches: dict[int, Batch] = {}
        self._read = 0
        self._alive: dict[tuple[int, int, int], StagePass] = {}  # between forward and backward action

    def rows(self, schedule: PipelineSchedule, work: Work) -> Iterator[Row]:
        """Run all actions on the batches of `work`; its rows, which come when the first of this process's
        stages has been updated, a step late."""
        network, named = self._network, self._network.device.naming_memory
        self._schedule, self._work = schedule, work
        self._rows = _Rows(work, self._links, self._first, self._last)
        network.parameters.apply_masks()
        for part in self._parts.values():
            part.summed = 0
            part.stash = Stash(network.parameters.flat[part.own]) if schedule.kind.stashes else None
        actions = {FORWARD: self._forward, BACKWARD: self._backward, UPDATE: self._update}
        for action in schedule.actions(self._rank):
            with named:
                begun = self._ready = time.perf_counter()
                actions[action.kind](action)
                if self._trace is not None:
                    network.device.synchronize()
                    numbered = action._replace(batch=work.first + action.batch)
                    self._trace.append((numbered, begun, self._ready, time.perf_counter()))
            if action.kind == UPDATE and action.stage == self._first and action.batch:
                yield self._rows.pop_row(action.batch - 1)
        count = len(work.sizes)
        with named:
            for stage in sorted(self._parts, reverse=True):
                if count:
                    self._rows.tell(stage, count - 1)
            self._links.finish()
        work.optimizer.settle()
        network.random_state["passes"] += count
        if count:
            yield self._rows.pop_row(count - 1)

    def _batch(self, number: int) -> Batch:
        """A batch, read when an action first needs it."""
        while self._read <= number:
            self._batches[self._read] = next(self._work.batches)
            self._read += 1
        return self._batches[number]

    def _into(self, arrays: dict[int, Array], boundary: int, size: int, steps: int) -> Parcel:
        """The arrays, of those that are held, that what passes a boundary is received into."""
        shapes = self._placement.boundaries[boundary].of_batch(size, steps)
        for index, shape in enumerate(shapes):
            if index not in arrays or arrays[index].shape != shape:
                arrays[index] = self._network.device.empty(shape, self._network.dtype)
        return tuple(arrays.values())

    def _forward(self, action: Action) -> None:
        stage, key = action.stage, (action.batch, action.micro)
        batch = self._batch(action.batch)
        # The samples of micro-batches differ by one at most; there may be none.
        batch_size, parts = self._work.sizes[action.batch], self._schedule.micro
        samples = slice(batch_size * action.micro // parts, batch_size * (action.micro + 1) // parts)
        size, steps = samples.stop - samples.start, batch.inputs.shape[1]
        if not size:
            return
        part, device = self._parts[stage], self._network.device
        current = part.free.pop() if part.free else part.stage.new_pass()
        if stage == 0:
            parcel: Parcel = (device.asarray(np.ascontiguousarray(batch.inputs[samples])),)
        else:
            into = partial(self._into, current.received, stage, size, steps)
            parcel = self._links.receive(FORWARD, stage, key, into)
        self._ready = time.perf_counter()
        lengths = None
        if batch.lengths is not None:
            lengths = take_lengths(device, batch.lengths[samples], size, steps)
        state = self._network.random_state
        if part.stash is not None:
            part.stash.forward(action.batch)
        draw = state["key"], state["passes"] + action.batch, action.micro
        made = part.stage.forward(current, parcel, draw, lengths, self._work.settings.method)
        self._alive[(stage, *key)] = current
        if stage < self._last:
            self._links.put(FORWARD, stage + 1, key, made)
            return
        smoothing = self._work.settings.label_smoothing
        loss, current.gradient = _loss_of(made[0], batch, samples, smoothing, device)
        self._rows.add_loss(action.batch, device.fetch(loss))

    def _backward(self, action: Action) -> None:
        stage, key = action.stage, (action.batch, action.micro)
        part, current = self._parts[stage], self._alive.pop((stage, *key), None)
        if current is None:  # a micro-batch of no sample
            return
        if stage == self._last:
            assert current.gradient is not None
            parcel: Parcel = (current.gradient,)
        else:
            steps = self._batch(action.batch).inputs.shape[1]
            into = partial(self._into, part.received, stage + 1, current.batch, steps)
            parcel = self._links.receive(BACKWARD, stage, key, into)
        self._ready = time.perf_counter()
        with nullcontext() if part.stash is None else part.stash.back(action.batch):
            part.stage.backward(
                current, parcel, lambda parcel: self._links.put(BACKWARD, stage - 1, key, parcel)
            )
        current.gradient = None
        part.free.append(current)
        if self._schedule.micro > 1:
            part.add_gradients(self._network.gradients.flat)

    def _update(self, action: Action) -> None:
        part, gradients, optimizer = self._parts[action.stage], self._network.gradients, self._work.optimizer
        if self._schedule.micro > 1:
            gradients.flat[part.own] = part.sum
            part.summed = 0
        if part.stash is not None:
            part.stash.update()
        self._rows.set_rate(action.batch)
        optimizer.step(gradients, part.own)
        self._rows.updated(action.stage, action.batch, optimizer.fetch_blocked(part.own))
        if action.stage == self._first:
            del self._batches[action.batch]


class _Rows:
    """The rows of the batches of one run, at the first stage of this process.

    Parameters
    ----------
    links : Local
        The messages between stages.
    first, last : int
        The first stage of this process, and the last of all.
    """

    def __init__(self, work: Work, links: Local, first: int, last: int) -> None:
        self._work, self._links, self._first, self._last = work, links, first, last
        self._losses: dict[int, list[Fetched]] = defaultdict(list)
        self._blocked: dict[tuple[int, int], Fetched] = {}
        self._rates: dict[int, float | None] = {}
        self._rows: dict[int, Row] = {}

    def set_rate(self, batch: int) -> None:
        """Let the optimizer have the rate of a batch, which is noted."""
        self._rates[batch] = self._work.set_rate(self._work.first + batch)

    def add_loss(self, batch: int, loss: Fetched) -> None:
        """Note a micro-batch's part of the loss of a batch."""
        self._losses[batch].append(loss)

    def updated(self, stage: int, batch: int, blocked: Fetched) -> None:
        """Note that a stage was updated by a batch, and tell of the batch before it."""
        self._blocked[stage, batch] = blocked
        if batch:
            self.tell(stage, batch - 1)

    def tell(self, stage: int, batch: int) -> None:
        """Hand on what is known of a batch that a stage was updated by; its row, at the first stage of this
        process. Raises NonFiniteError naming its step."""
        blocked = bool(self._blocked.pop((stage, batch))()[0])
        if stage == self._last:
            loss = math.fsum(float(value()) for value in self._losses.pop(batch))
        else:
            loss, before = self._links.receive_report(stage, batch)
            blocked = blocked or bool(before)
        if stage > 0:
            self._links.report(stage, batch, np.array([loss, blocked], np.float64))
        step = self._work.first + batch
        if not math.isfinite(loss) or blocked:
            reason = "a gradient is not finite" if math.isfinite(loss) else f"the loss is {loss}"
            raise not_finite(f"{reason} at", step, CURE)
        if stage == self._first:
            self._rows[batch] = {"step": step, "epoch": self._work.epoch + 1, "loss": float(loss)}
            rate = self._rates.pop(batch)
            if rate is not None:
                self._rows[batch]["lr"] = rate

    def pop_row(self, batch: int) -> Row:
        """The row of a batch, once."""
        return self._rows.pop(batch)


def _loss_of(
    scores: Array, batch: Batch, samples: slice, smoothing: float, device: Device
) -> tuple[Array, Array]:
    """What a micro-batch adds to the loss of its batch, and the gradient with respect to its scores. Raises
    what `cross_entropy` raises, also where no label of the batch counts."""
    lengths = None if batch.label_lengths is None else batch.label_lengths[samples]
    counted = int(np.count_nonzero(counted_labels(batch.labels, batch.label_lengths))) or None
    return cross_entropy(
        scores, batch.labels[samples], lengths=lengths, counted=counted, label_smoothing=smoothing,
        device=device,
    )  # fmt: skip
