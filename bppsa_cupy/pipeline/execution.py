"""The actions of a schedule at work: passes, messages, updates and the rows of the steps."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from bppsa_cupy.data import Batch
from bppsa_cupy.data.dataset import counted_labels
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.distributed import Group
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.pipeline.placement import Placement, with_batch
from bppsa_cupy.pipeline.schedules import BACKWARD, FORWARD, UPDATE, Action, PipelineSchedule
from bppsa_cupy.pipeline.stage import Parcel, Stage, StagePass
from bppsa_cupy.timescan.lengths import take_lengths
from bppsa_cupy.training.losses import cross_entropy
from bppsa_cupy.training.steps import Row, Work, not_finite

#: What a step that is not finite suggests.
CURE = "take fewer cuts, a lower learning rate or the schedule stale-1f1b"
#: The first tag of messages between ranks.
FIRST_TAG = 2

#: An action, its batch being the number of the step from 1 over all epochs; when it began, when its input was
#: there, and when it ended: seconds of one clock for all ranks of a machine.
TraceRow = tuple[Action, float, float, float]


class Links:
    """The messages between stages: activations (FORWARD), gradients (BACKWARD), and what a stage reports of a
    batch (UPDATE). With several ranks, rank r has stage r, and sends do not wait."""

    def __init__(self, group: Group | None) -> None:
        self._group = group if group is not None and group.size > 1 else None
        self._parcels: dict[tuple[int, int, int, int], Parcel] = {}

    def put(self, kind: int, target: int, key: tuple[int, int], parcel: Parcel) -> None:
        """Send arrays to stage `target`. `key` is batch and micro-batch.

        The caller may overwrite gradients afterwards, and activations after the backward pass.
        """
        if kind == BACKWARD:
            parcel = tuple(array.copy() for array in parcel)
        if self._group is None:
            self._parcels[(kind, target, *key)] = parcel
            return
        for index, array in enumerate(parcel):
            if not array.flags.c_contiguous:
                array = self._group.device.xp.ascontiguousarray(array)
            self._group.isend(array, target, FIRST_TAG + 3 * index + kind)

    def receive(self, kind: int, stage: int, key: tuple[int, int], into: Callable[[], Parcel]) -> Parcel:
        """Return the arrays that were sent to a stage. Between ranks, those of `into` receive them."""
        if self._group is None:
            return self._parcels.pop((kind, stage, *key))
        parcel, source = into(), stage - 1 if kind == FORWARD else stage + 1
        for index, array in enumerate(parcel):
            self._group.receive(array, source, FIRST_TAG + 3 * index + kind)
        return parcel

    def finish(self) -> None:
        """Wait until all arrays that were sent may be changed."""
        if self._group is not None:
            self._group.finish()


class Run:
    """One run of a schedule on the stages that this process has: all of them, or one rank's.

    Parameters
    ----------
    stages : dict of int to Stage
        The stages of this process, by number.
    trace : list of TraceRow or None
        Takes a row of each action; None for no trace.
    """

    def __init__(
        self,
        network: Sequential,
        placement: Placement,
        stages: dict[int, Stage],
        group: Group | None,
        trace: list[TraceRow] | None,
    ) -> None:
        self._network, self._placement, self._stages, self._trace = network, placement, stages, trace
        self._first, self._last = min(stages), len(placement.stages) - 1
        self._links = Links(group)
        self._rank = None if group is None else group.rank
        self._batches: dict[int, Batch] = {}
        self._read = 0
        self._alive: dict[tuple[int, int, int], StagePass] = {}  # between forward and backward action
        self._losses: dict[int, list[Callable[[], np.ndarray]]] = defaultdict(list)
        self._blocked: dict[tuple[int, int], Callable[[], np.ndarray]] = {}
        self._rates: dict[int, float | None] = {}

    def rows(self, schedule: PipelineSchedule, work: Work) -> Iterator[Row]:
        """Run all actions on the batches of `work`. Yield the row of a step when the first stage of this
        process has been updated by the next batch."""
        network, named = self._network, self._network.device.naming_memory
        self._schedule, self._work = schedule, work
        network.parameters.apply_masks()
        for stage in self._stages.values():
            stage.begin_run(schedule.kind.stashes)
        actions = {FORWARD: self._forward, BACKWARD: self._backward, UPDATE: self._update}
        row: Row | None = None
        for action in schedule.actions(self._rank):
            with named:
                begun = self._ready = time.perf_counter()
                row = actions[action.kind](action)
                if self._trace is not None:
                    network.device.synchronize()
                    numbered = action._replace(batch=work.first + action.batch)
                    self._trace.append((numbered, begun, self._ready, time.perf_counter()))
            if row is not None:
                yield row
        count = len(work.sizes)
        with named:
            if count:
                for number in sorted(self._stages, reverse=True):
                    row = self._report(number, count - 1)
            self._links.finish()
        work.optimizer.settle()
        network.random_state["passes"] += count
        if row is not None:
            yield row

    def _batch(self, number: int) -> Batch:
        """A batch, read when an action first needs it."""
        while self._read <= number:
            self._batches[self._read] = next(self._work.batches)
            self._read += 1
        return self._batches[number]

    def _into(self, arrays: dict[int, Array], boundary: int, size: int, steps: int) -> Parcel:
        """The arrays, of those that are held, that what passes a boundary is received into."""
        shapes = with_batch(self._placement.boundaries[boundary], size, steps)
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
        at, device = self._stages[stage], self._network.device
        current = at.free.pop() if at.free else at.new_pass()
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
        at.note_forward(action.batch)
        draw = state["key"], state["passes"] + action.batch, action.micro
        made = at.forward(current, parcel, draw, lengths, self._work.settings.method)
        self._alive[(stage, *key)] = current
        if stage < self._last:
            self._links.put(FORWARD, stage + 1, key, made)
            return
        smoothing = self._work.settings.label_smoothing
        loss, current.gradient = _loss_of(made[0], batch, samples, smoothing, device)
        self._losses[action.batch].append(device.fetch(loss))

    def _backward(self, action: Action) -> None:
        stage, key = action.stage, (action.batch, action.micro)
        at, current = self._stages[stage], self._alive.pop((stage, *key), None)
        if current is None:  # a micro-batch of no sample
            return
        if stage == self._last:
            assert current.gradient is not None
            parcel: Parcel = (current.gradient,)
        else:
            steps = self._batch(action.batch).inputs.shape[1]
            into = partial(self._into, at.received, stage + 1, current.batch, steps)
            parcel = self._links.receive(BACKWARD, stage, key, into)
        self._ready = time.perf_counter()
        with at.forward_values(action.batch):
            at.backward(current, parcel, lambda parcel: self._links.put(BACKWARD, stage - 1, key, parcel))
        current.gradient = None
        at.free.append(current)
        if self._schedule.micro > 1:
            at.add_gradients()

    def _update(self, action: Action) -> Row | None:
        at, gradients, optimizer = self._stages[action.stage], self._network.gradients, self._work.optimizer
        if self._schedule.micro > 1:
            gradients.flat[at.part], at.gradient_sum = at.gradient_sum, None
        at.begin_update()
        self._rates[action.batch] = self._work.set_rate(self._work.first + action.batch)
        optimizer.step(gradients, at.part)
        self._blocked[action.stage, action.batch] = optimizer.fetch_blocked(at.part)
        if action.stage == self._first:
            del self._batches[action.batch]
        return self._report(action.stage, action.batch - 1) if action.batch else None

    def _report(self, stage: int, batch: int) -> Row | None:
        """Send the loss of a batch, and whether an update was blocked, to the stage before. Return its row at
        the first stage of this process. Raises NonFiniteError naming its step."""
        blocked = bool(self._blocked.pop((stage, batch))()[0])
        if stage == self._last:
            loss = math.fsum(float(value()) for value in self._losses.pop(batch))
        else:
            ((loss, before),) = self._links.receive(UPDATE, stage, (batch, 0), lambda: (np.empty(2),))
            blocked = blocked or bool(before)
        if stage > 0:
            self._links.put(UPDATE, stage - 1, (batch, 0), (np.array([loss, blocked], np.float64),))
        step = self._work.first + batch
        if not math.isfinite(loss) or blocked:
            reason = "a gradient is not finite" if math.isfinite(loss) else f"the loss is {loss}"
            raise not_finite(f"{reason} at", step, CURE)
        if stage > self._first:
            return None
        row: Row = {"step": step, "epoch": self._work.epoch + 1, "loss": float(loss)}
        rate = self._rates.pop(batch)
        return row if rate is None else {**row, "lr": rate}


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
