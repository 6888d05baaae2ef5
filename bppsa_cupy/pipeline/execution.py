"""The actions of a schedule at work: passes, links, updates and the rows of the steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np

from bppsa_cupy.data import Batch
from bppsa_cupy.data.labels import counted_labels
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.distributed import Group
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.pipeline.links import Awaited, Links, LocalLinks, RankLinks
from bppsa_cupy.pipeline.placement import Placement
from bppsa_cupy.pipeline.schedules import BACKWARD, FORWARD, UPDATE, Action, PipelineSchedule
from bppsa_cupy.pipeline.stage import Parcel, Stage, StagePass
from bppsa_cupy.pipeline.trace import Trace
from bppsa_cupy.pipeline.weights import Stash, predicted
from bppsa_cupy.timescan.lengths import take_lengths
from bppsa_cupy.training.losses import cross_entropy
from bppsa_cupy.training.steps import Row, Work, not_finite

#: What a step that is not finite suggests.
CURE = "take fewer cuts, a lower learning rate, the schedule stale-1f1b or predicted weights"

#: Waits for an array that is on its way to the host.
Fetched = Callable[[], np.ndarray]


class _StageState:
    """A stage with what it keeps from one run to the next.

    own   where its parameters and gradients lie in `flat`
    free  passes that are not alive
    sum   of micro-batches' gradients
    """

    def __init__(self, stage: Stage, own: slice) -> None:
        self.stage, self.own = stage, own
        self.free: list[StagePass] = []
        self.sum: Array | None = None
        self._summed = 0
        self.stash: Stash | None = None

    def begin(self) -> None:
        """Forget what a run that was broken off has left."""
        self._summed = 0

    def add_gradients(self, flat: Array) -> None:
        """Add a micro-batch's gradients to the sum."""
        if self.sum is None:
            self.sum = flat[self.own].copy()
        elif self._summed:
            self.sum += flat[self.own]
        else:
            self.sum[...] = flat[self.own]
        self._summed += 1

    def take_sum(self, flat: Array) -> None:
        """Let the gradients be the sum, which begins anew."""
        flat[self.own] = self.sum
        self._summed = 0


class _Alive(NamedTuple):
    """A pass between its forward and its backward action, and what entered the stage."""

    current: StagePass
    given: Parcel


class Execution:
    """Runs schedules on the stages that this process has: all of them, or one rank's.

    network  whose parameters, gradients and buffers the stages work on
    stages   those of this process
    whole    whether the last run left everything as a whole number of steps does: see `_Run.close`
    """

    def __init__(
        self,
        placement: Placement,
        network: Sequential,
        stages: range,
        group: Group | None,
        trace: Trace | None,
    ) -> None:
        self.network, self._group, self._trace = network, group, trace
        self.placement, self.stages = placement, stages
        self._last, self.whole = len(placement.stages) - 1, True
        arrays = (
            network.parameters.arrays,
            network.gradients.arrays,
            network.parameters.masks,
            network.buffers,
        )
        self.parts = {
            stage: _StageState(
                Stage(placement, stage, network.device, network.dtype, *arrays),
                network.parameters.layout.part_of(placement.parameter_names[stage]),
            )
            for stage in stages
        }

    def run(self, schedule: PipelineSchedule, work: Work, predict: bool) -> Iterator[Row]:
        """Run all actions on the batches of `work`; its rows, which come when the first of this process's
        stages has been updated, a step late. Without stale weights the updates of a step come together."""
        named, first = self.network.device.naming_memory, self.stages.start
        self.network.parameters.apply_masks()
        self.whole = True
        with named:
            run = _Run(self, schedule, work, predict)
        rank = None if self._group is None else self._group.rank
        held: list[Action] = []
        try:
            for action in schedule.actions(rank):
                with named:
                    if action.kind != UPDATE:
                        run.pass_through(action)
                        continue
                    held.append(action)
                    if not schedule.kind.overlaps and len(held) < len(self.parts):
                        continue
                    run.update(sorted(held, key=lambda update: -update.stage))
                told = action.batch and any(update.stage == first for update in held)
                held.clear()
                if told:
                    yield run.rows.take(action.batch - 1)
            with named:
                run.end()
        finally:
            self.whole = run.close()
        if work.sizes:
            yield run.rows.take(len(work.sizes) - 1)


class _Run:
    """One run of a schedule."""

    def __init__(self, execution: Execution, schedule: PipelineSchedule, work: Work, predict: bool) -> None:
        self._execution, self._schedule, self._work = execution, schedule, work
        network = self._network = execution.network
        self._parts, self._last = execution.parts, execution._last
        self._predict = predict
        self._missed = {stage: schedule.missed_updates(stage) for stage in self._parts} if predict else {}
        self._passes = network.random_state["passes"]
        self._batches: dict[int, Batch] = {}
        self._read = 0
        self._alive: dict[tuple[int, int, int], _Alive] = {}
        self._updates = dict.fromkeys(self._parts, 0)
        self._kept: int | None = None  # the updates at which buffers were kept
        self._ended = False
        for part in self._parts.values():
            part.begin()
            part.stash = Stash(network.parameters.flat[part.own]) if schedule.kind.stashes else None
        self._links: Links = LocalLinks()
        if execution._group is not None and execution._group.size > 1:
            self._links = RankLinks(execution._group, network.dtype, self._awaited(execution._group.rank))
        self.rows = _Rows(work, self._links, execution.stages.start, self._last)

    # ---- actions ----

    def pass_through(self, action: Action) -> None:
        """Run an action that is no update."""
        begun = self._ready = time.perf_counter()
        (self._forward if action.kind == FORWARD else self._backward)(action)
        self._trace(action, begun)

    def update(self, actions: Sequence[Action]) -> None:
        """Run updates of one batch."""
        begun = self._ready = time.perf_counter()
        for action in actions:
            self._update(action)
            self._updates[action.stage] += 1
            self._trace(action, begun)
            begun = self._ready = time.perf_counter()
        for action in actions:
            self._updated(action.stage, action.batch)

    def _trace(self, action: Action, begun: float) -> None:
        """Tell the trace, if there is one, of an action that has ended."""
        if (trace := self._execution._trace) is not None:
            self._network.device.synchronize()
            told = action._replace(batch=self._work.first + action.batch)
            trace.add(told, begun, self._ready, time.perf_counter())

    # ---- batches ----

    def _batch(self, number: int) -> Batch:
        """A batch, read when an action first needs it."""
        while self._read <= number:
            self._batches[self._read] = next(self._work.batches)
            self._read += 1
        return self._batches[number]

    def _samples(self, batch: int, micro: int) -> slice:
        """The samples of a micro-batch."""
        return _samples_of(self._work.sizes[batch], self._schedule.micro, micro)

    def _forward(self, action: Action) -> None:
        stage, key = action.stage, (action.batch, action.micro)
        batch, samples = self._batch(action.batch), self._samples(*key)
        if samples.start == samples.stop:
            return
        part, device = self._parts[stage], self._network.device
        if not self._alive and set(self._updates.values()) == {action.batch} != {self._kept}:
            self._network.buffers.keep()
            self._kept = action.batch
        if stage == 0:
            given: Parcel = (device.asarray(np.ascontiguousarray(batch.inputs[samples])),)
        else:
            given = self._links.take(FORWARD, stage, key)
        self._ready = time.perf_counter()
        current = part.free.pop() if part.free else part.stage.new_pass()
        lengths = None
        if batch.lengths is not None:
            size = samples.stop - samples.start
            lengths = take_lengths(device, batch.lengths[samples], size, batch.inputs.shape[1])
        draw = self._network.random_state["key"], self._passes + action.batch, action.micro
        if part.stash is not None:
            part.stash.forward(action.batch)
        missed = int(self._missed[stage][action.batch]) if self._predict else 0
        if missed:
            self._work.set_rate(self._work.first + action.batch)
        weights = (
            predicted(self._network.parameters, self._work.optimizer, part.own, missed)
            if missed
            else nullcontext()
        )
        with weights:
            made = part.stage.forward(current, given, draw, lengths, self._work.settings.method)
        self._alive[(stage, *key)] = _Alive(current, given)
        if stage == self._last:
            current.gradient = self._loss(made[0], batch, samples, action.batch)
        else:
            self._links.put(FORWARD, stage, key, made)

    def _loss(self, scores: Array, batch: Batch, samples: slice, number: int) -> Array:
        """The gradient of a batch's loss by the scores of a micro-batch, whose part of it is noted."""
        smoothing, device = self._work.settings.label_smoothing, self._network.device
        loss, gradient = _loss_of(scores, batch, samples, smoothing, device)
        self.rows.add_loss(number, device.fetch(loss))
        return gradient

    def _backward(self, action: Action) -> None:
        stage, key = action.stage, (action.batch, action.micro)
        alive = self._alive.get((stage, *key))
        if alive is None:  # a micro-batch of no sample
            return
        part, current = self._parts[stage], alive.current
        if stage == self._last:
            assert current.gradient is not None
            given: Parcel = (current.gradient,)
        else:
            given = self._links.take(BACKWARD, stage, key)
        self._ready = time.perf_counter()
        weights = nullcontext() if part.stash is None else part.stash.back(action.batch)
        with weights:
            part.stage.backward(current, given, lambda parcel: self._links.put(BACKWARD, stage, key, parcel))
        del self._alive[(stage, *key)]
        if stage < self._last:
            self._links.done(BACKWARD, stage, given)
        if stage > 0:
            self._links.done(FORWARD, stage, alive.given)
        current.gradient = None
        part.free.append(current)
        if self._schedule.micro > 1:
            part.add_gradients(self._network.gradients.flat)

    def _update(self, action: Action) -> None:
        """Update a stage."""
        part, gradients = self._parts[action.stage], self._network.gradients
        if self._schedule.micro > 1:
            part.take_sum(gradients.flat)
        if part.stash is not None:
            part.stash.update()
        self.rows.set_rate(action.batch)
        self._work.optimizer.step(gradients, part.own)

    def _updated(self, stage: int, batch: int) -> None:
        """What follows a stage's update."""
        self.rows.updated(stage, batch, self._work.optimizer.fetch_blocked(self._parts[stage].own))
        if stage == self._execution.stages.start:
            del self._batches[batch]

    def end(self) -> None:
        """End the run, after its last action."""
        if self._work.sizes:
            for stage in reversed(self._execution.stages):
                self.rows.tell(stage, len(self._work.sizes) - 1)
        self._links.finish()
        self._ended = True

    def close(self) -> bool:
        """Count the steps that all stages of this process have made, also where the run was broken off.

        Returns whether every stage has made the same steps, and running statistics are those after the last
        of them: they are set back where a copy was kept."""
        even = self._work.optimizer.settle([part.own for part in self._parts.values()])
        updates = set(self._updates.values())
        self._network.random_state["passes"] += min(updates)
        if len(updates) > 1 or not even:
            return False
        if self._execution._group is not None:  # of other ranks nothing is known here, but at the end
            return self._ended
        if updates == {self._kept}:
            self._network.buffers.restore()
            return True
        return not self._alive

    def _awaited(self, rank: int) -> Iterator[Awaited]:
        """What others send to this rank, of each in the order in which it sends."""
        boundaries = self._execution.placement.boundaries
        steps = self._batch(0).inputs.shape[1] if self._work.sizes else None
        for action in self._schedule.actions():
            if action.kind not in (FORWARD, BACKWARD):
                continue
            target = action.stage + (1 if action.kind == FORWARD else -1)
            samples, key = self._samples(action.batch, action.micro), (action.batch, action.micro)
            size = samples.stop - samples.start
            if size and 0 <= target <= self._last and target in self._parts:
                shapes = boundaries[max(target, action.stage)].of_batch(size, steps)
                yield Awaited(action.stage, action.kind, target, key, shapes)


class _Rows:
    """The rows of the batches of one run, at the first stage of this process.

    links        by which stages tell each other of a batch, from the last stage to the first
    first, last  the first stage of this process, and the last of all
    """

    def __init__(self, work: Work, links: Links, first: int, last: int) -> None:
        self._work, self._links, self._first, self._last = work, links, first, last
        self._losses: dict[int, list[Fetched]] = {}
        self._blocked: dict[tuple[int, int], Fetched] = {}
        self._rates: dict[int, float | None] = {}
        self._rows: dict[int, Row] = {}

    def set_rate(self, batch: int) -> None:
        """Let the optimizer have the rate of a batch, which is noted."""
        self._rates[batch] = self._work.set_rate(self._work.first + batch)

    def add_loss(self, batch: int, loss: Fetched) -> None:
        """Note a micro-batch's part of the loss of a batch."""
        self._losses.setdefault(batch, []).append(loss)

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
            loss, before = self._links.told(stage, batch)
            blocked = blocked or bool(before)
        if stage > 0:
            self._links.report(stage, batch, np.array([loss, blocked], np.float64))
        step = self._work.first + batch
        if not math.isfinite(loss) or blocked:
            found = "a gradient is not finite" if math.isfinite(loss) else f"the loss is {loss}"
            raise not_finite(f"{found} at", step, CURE)
        if stage == self._first:
            self._rows[batch] = {"step": step, "epoch": self._work.epoch + 1, "loss": float(loss)}
            rate = self._rates.pop(batch)
            if rate is not None:
                self._rows[batch]["lr"] = rate

    def take(self, batch: int) -> Row:
        """The row of a batch, once."""
        return self._rows.pop(batch)


def _samples_of(size: int, parts: int, number: int) -> slice:
    """The samples of one of the parts of a batch of `size`: their numbers differ by one at most, and are 0
    where there are more parts than samples."""
    return slice(size * number // parts, size * (number + 1) // parts)


def _loss_of(
    scores: Array, batch: Batch, samples: slice, smoothing: float, device: Device
) -> tuple[Array, Array]:
    """What a micro-batch adds to the loss of its batch, by its share of the labels that count, and the
    gradient by its scores. Raises what `cross_entropy` raises, also where no label of the batch counts."""
    labels = batch.labels[samples]
    lengths = None if batch.label_lengths is None else batch.label_lengths[samples]
    if len(labels) == len(batch.labels):
        return cross_entropy(scores, labels, lengths=lengths, label_smoothing=smoothing, device=device)
    counted = np.count_nonzero(counted_labels(labels, lengths))
    every = np.count_nonzero(counted_labels(batch.labels, batch.label_lengths))
    if every and not counted:
        return device.zeros((), scores.dtype), device.zeros(scores.shape, scores.dtype)
    loss, gradient = cross_entropy(scores, labels, lengths=lengths, label_smoothing=smoothing, device=device)
    share = scores.dtype.type(counted / every)
    return loss * share, gradient * share
