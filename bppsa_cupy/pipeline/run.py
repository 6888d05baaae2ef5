"""Pipelined training: a schedule's actions, run by one process or by ranks."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.data import Batch
from bppsa_cupy.data.dataset import counted_labels
from bppsa_cupy.devices import Array, Launch
from bppsa_cupy.distributed import Group
from bppsa_cupy.distributed.shared import SharedSequential
from bppsa_cupy.errors import BppsaError, DistributedError, ShapeError
from bppsa_cupy.layers import Context
from bppsa_cupy.layers.stack import backward_input_first, forward_through, inner_draw
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.pipeline.placement import Item, Placement
from bppsa_cupy.pipeline.schedules import (
    BACKWARD,
    FORWARD,
    SCHEDULES,
    UPDATE,
    Action,
    PipelineSchedule,
    check_schedule,
    make_schedule,
)
from bppsa_cupy.timescan.lengths import take_lengths
from bppsa_cupy.training.loop import Row, Work, not_finite
from bppsa_cupy.training.losses import cross_entropy
from bppsa_cupy.training.optimizers import Optimizer
from bppsa_cupy.training.settings import Settings

#: What a step that is not finite suggests.
CURE = "take fewer cuts, a lower learning rate or the schedule stale-1f1b"
#: An action, its batch being the number of the step from 1 over all epochs; when it began, when its input was
#: there, and when it ended: seconds of one clock for all ranks of a machine.
TraceRow = tuple[Action, float, float, float]


class Pipeline:
    """A network cut into stages, for pipelined training. Pass it to `train` instead of the network.

    Parameters
    ----------
    net : Sequential
        The network. Without a group, the pipeline trains this network. With a group, every rank passes the
        same network, and the attribute `network` is a copy for training.
    ppv : sequence of int, or int
        Numbers of the layers after which the network is cut (see `Placement`). K cuts make K + 1 stages.
    schedule : {"stale", "none", "gpipe", "1f1b", "pipedream", "stale-1f1b"}, default: "stale"
        "none" processes one batch at a time. "gpipe" and "1f1b" overlap the micro-batches of one batch. The
        others overlap batches. The backward pass of "pipedream" uses the weights of its forward pass, that of
        "stale" (Zhang and Abdelrahman 2020, section 3) and "stale-1f1b" the current weights.
    group : Group, optional
        K + 1 ranks, one per stage. None runs all stages in this process and gives the same values.
    micro_batches : int, default: 1
        Number of micro-batches per batch, for "gpipe" and "1f1b". Their sizes differ by at most one sample.
    non_pipelined_after : int, optional
        Number of steps after which the schedule becomes "none" (hybrid training, Zhang and Abdelrahman 2020,
        section 4).
    trace : list, optional
        A list to which the pipeline appends one row per forward or backward pass of a stage in this process.

    Raises
    ------
    BppsaError
        If an argument is not valid, or does not match the network.
    DistributedError
        If the group does not have one rank per stage.

    Notes
    -----
    The pipeline is empty at the start and end of each epoch, and when the schedule changes. After an error,
    the stages may be at different steps: create another pipeline and load a checkpoint. With a group, all
    ranks must create the pipeline and call its methods in the same order.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(3, 4), bp.ReLU(), bp.Linear(4, 2)], input_shape=(3,), device="host")
    >>> pipeline = bp.Pipeline(net, (1,), schedule="1f1b", micro_batches=2)
    >>> pipeline.stages
    2
    """

    def __init__(
        self,
        net: Sequential,
        ppv: Sequence[int] | int,
        schedule: str = "stale",
        group: Group | None = None,
        *,
        micro_batches: int = 1,
        non_pipelined_after: int | None = None,
        trace: list[TraceRow] | None = None,
    ) -> None:
        check_schedule(schedule, micro_batches)
        self.network = net if group is None else SharedSequential(net, group, ppv=str(ppv))
        self.placement = Placement(self.network, ppv)
        self.schedule, self.micro_batches = schedule, micro_batches
        self.non_pipelined_after = non_pipelined_after
        if non_pipelined_after is not None:
            as_integer("Pipeline", "non_pipelined_after", non_pipelined_after, 0, error=BppsaError)
        self.group, self.trace = group, trace
        if group is not None and group.size != self.stages:
            raise DistributedError(
                f"the ppv {self.placement.ppv} makes {self.stages} stages, but the group has {group.size} "
                f"ranks: start {self.stages} ranks, one per stage, or pass a ppv with {group.size - 1} cuts"
            )
        self._make_stages()
        self._is_running = False

    def _make_stages(self) -> None:
        numbers = range(self.stages) if self.group is None else [self.group.rank]
        self._stages = {number: Stage(self.placement, number, self.network) for number in numbers}

    @property
    def stages(self) -> int:
        """The number of stages, K + 1."""
        return len(self.placement.stages)

    def check(self, optimizer: Optimizer, settings: Settings, batch_size: int) -> None:
        """Raise BppsaError if the pipeline does not support `settings` or `batch_size`. `train` calls it."""
        if settings.method not in ("auto", "bp"):
            raise BppsaError(
                f"method={settings.method!r} cannot be used in a pipeline, which always uses 'bp': omit "
                "method"
            )
        for name, setting in (("clip", settings.clip), ("gradient_hook", settings.gradient_hook)):
            if setting is not None:
                raise BppsaError(
                    f"{name} needs the gradients of all stages of one step, but the stages of a pipeline are "
                    f"at different steps: omit {name}"
                )
        if self.micro_batches > batch_size:
            raise BppsaError(
                f"a batch of {batch_size} cannot be split into {self.micro_batches} micro-batches: pass at "
                f"most {batch_size}"
            )

    def stop(self, step: int, last: int) -> int:
        """Return `non_pipelined_after` if it is between `step` and `last`, else `last`. `train` calls it."""
        after = self.non_pipelined_after
        return last if after is None or step >= after else min(last, after)

    def steps(self, work: Work) -> Iterator[Row]:
        """Run the training steps of `work`, and yield one dict of results per step. `train` calls it.

        Raises NonFiniteError, naming the step, if the loss or a gradient is not finite.
        """
        if self._is_running:
            raise BppsaError(
                "an error stopped the pipeline inside a step: create a new bp.Pipeline, and load a "
                "checkpoint into network and optimizer"
            )
        after = self.non_pipelined_after
        name = self.schedule if after is None or work.first <= after else "none"
        micro = self.micro_batches if SCHEDULES[name].micro else 1
        schedule = make_schedule(name, self.stages, len(work.sizes), micro)
        work.history.ran = work.history.ran or [self._describe(name)]
        self.network.train()
        if self.network.architecture is not self.placement.architecture:  # the masks are others
            self.placement = Placement(self.network, self.placement.ppv)
            self._make_stages()
        self._is_running = True
        yield from Run(self, self._stages).rows(schedule, work)
        self._is_running = False

    def _describe(self, name: str) -> str:
        """Return the line on how the backward pass runs."""
        how = "simulated by one process" if self.group is None else f"on {self.stages} ranks"
        kind, parts, stages = SCHEDULES[name], self.micro_batches, f"{self.stages} stages"
        micro = f" of {parts} micro-batches" if kind.micro and parts > 1 else ""
        return f"backward: bp (pipeline {name}{micro}, ppv {self.placement.ppv}, {stages} {how})"


#: What passes a boundary: an activation, or a gradient, and one a residual block that is cut there.
Parcel = tuple[Array, ...]
#: Called with the gradients by the stage's input.
Send = Callable[[Parcel], None]


@dataclass
class StagePass:
    """A stage's part of one forward pass.

    Attributes
    ----------
    contexts : list of list of Context
        The contexts of each item: one of its layer, or at the end of a block an extra one and those of the
        shortcut.
    gradient : array or None
        The gradient with respect to the output of the last stage, from the loss.
    batch : int
        Samples.
    received : dict of int to array
        The arrays that the stage's input is received into.
    """

    contexts: list[list[Context]]
    gradient: Array | None = None
    batch: int = 0
    received: dict[int, Array] = field(default_factory=dict)


class Stage:
    """One stage of a network on a device, and what it stores from one run of a schedule to the next.

    `forward` and `backward` give the bits of `Sequential` by back-propagation.

    Attributes
    ----------
    part : slice
        The parameters and gradients of the stage in the `flat` arrays of the network.
    free : list of StagePass
        Passes that are not in use.
    gradient_sum : array or None
        The sum of the gradients of the micro-batches of a batch, None before the first one.
    stashes : bool
        Whether `backward` uses the parameters of the forward pass.
    stashed : dict of int to array or None
        The parameters of each batch that went forward and not back; None while they are the present ones.
    received : dict of int to array
        The arrays that gradients are received into.
    """

    def __init__(self, placement: Placement, number: int, network: Sequential) -> None:
        self.number, self.network, self.items = number, network, placement.stages[number]
        self.part = network.parameters.layout.part_of(placement.parameter_names[number])
        trained = [bool(item.names(item.layer.parameter_shapes())) for item in self.items]
        # Whether the gradient by an item's input is needed: by another stage, or for parameters before it.
        self._wanted = [number > 0 or any(trained[:index]) for index in range(len(self.items))]
        self._any = number > 0 or any(trained)
        # Buffers of the backward passes, by item.
        self._scratch: list[dict[int, dict[str, Array]]] = [{} for _ in self.items]
        self.free: list[StagePass] = []
        self.gradient_sum: Array | None = None
        self.received: dict[int, Array] = {}
        self.stashes = False
        self.stashed: dict[int, Array | None] = {}

    def contexts(self, item: Item) -> list[Context]:
        """New contexts of an item for a pass."""
        net = self.network
        arrays = net.device, net.dtype, net.parameters.arrays, net.gradients.arrays, net.buffers
        if item.kind == "layer":
            return [item.stack.new_context(item.index, *arrays, prefix=item.path)]
        contexts = [Context(net.device, net.dtype, {}, {}, item.input_shape)]
        if item.kind == "close":
            prefix, shortcut = f"{item.place}.shortcut.", item.shortcut
            contexts += [
                shortcut.new_context(index, *arrays, prefix=prefix) for index in range(len(shortcut.layers))
            ]
        return contexts

    # ---- forward ----

    def forward(
        self, current: StagePass, parcel: Parcel, draw: tuple[int, int, int], lengths: Any, method: str
    ) -> Parcel:
        """Return the output of the stage for its input, and fill the pass.

        Raises ShapeError with the place of a layer that does not take its input.

        Parameters
        ----------
        draw : tuple of 3 int
            The seed of random numbers: the key of the network, the number of the training pass, and the
            number of the micro-batch.
        lengths : object
            Lengths of sequences, as recurrent layers take them.
        method : str
            Method of the network's backward pass, which recurrent layers are told.
        """
        x, *carried = parcel
        current.batch = len(x)
        for item, contexts in zip(self.items, current.contexts, strict=True):
            ctx = contexts[0]
            if item.kind == "open":
                carried.append(x)
            elif item.kind == "close":
                draws = partial(inner_draw, _draw(item, draw), "shortcut")
                for inner in contexts[1:]:
                    inner.lengths, inner.method = lengths, method
                try:
                    aside = item.shortcut.forward(contexts[1:], carried.pop(), True, draws)
                except ShapeError as error:
                    raise error.at(f"{item.place}.shortcut") from error
                y = ctx.buffer("output", x.shape)
                x = self.network.device.xp.add(x, aside, out=y)
            else:
                ctx.lengths, ctx.method = lengths, method
                x = forward_through(item.layer, ctx, x, True, _draw(item, draw), item.place)
        return (x, *carried)

    # ---- back ----

    def backward(self, current: StagePass, parcel: Parcel, send: Send) -> None:
        """Write the stage's gradients from those with respect to its output.

        Parameters have their present values.

        Parameters
        ----------
        send : Send
            Takes the gradients with respect to the stage's input, of all stages but the first, as soon as
            they are there.
        """
        for contexts, scratch in zip(current.contexts, self._scratch, strict=True):
            for index, ctx in enumerate(contexts):
                ctx.lend(scratch.setdefault(index, {}))
        gradient, *carried = parcel
        result: Array | None = gradient if self._any else None
        later: list[Launch] = []
        for position in reversed(range(len(self.items))):
            if result is None:
                break
            item, contexts = self.items[position], current.contexts[position]
            ctx, wanted = contexts[0], self._wanted[position]
            if item.kind == "open":
                total = ctx.buffer("input_gradient", result.shape)
                result = self.network.device.xp.add(result, carried.pop(), out=total)
            elif item.kind == "close":
                aside: Array | None = result
                for layer, inner in zip(item.shortcut.layers[::-1], contexts[:0:-1], strict=True):
                    aside = backward_input_first(layer, inner, aside, True, later)
                carried.append(aside)
            else:
                result = backward_input_first(item.layer, ctx, result, wanted, later)
        if self.number > 0:
            assert result is not None
            send((result, *carried))
        for write in later:
            write()
        for contexts in current.contexts:
            for ctx in contexts:
                ctx.lend(None)

    # ---- parameters and gradients ----


def _draw(item: Item, draw: tuple[int, int, int]) -> tuple[int, int, int]:
    """What the random numbers of an item's layer follow from: of the first micro-batch, as those of the whole
    network's pass do."""
    key, passes, micro = draw
    first, *inside = item.place.split(".")
    number = int(first) if micro == 0 else crc32(f"{first}.micro.{micro}".encode())
    result = key, number, passes
    for branch, index in zip(inside[::2], inside[1::2], strict=True):
        result = inner_draw(result, branch, int(index))
    return result


class Run:
    """One run of a schedule on the stages that this process has: all of them, or one per rank."""

    def __init__(self, pipeline: Pipeline, stages: dict[int, Stage]) -> None:
        self._network, self._placement, self._stages = pipeline.network, pipeline.placement, stages
        self._trace, group = pipeline.trace, pipeline.group
        self._first, self._last = min(stages), len(self._placement.stages) - 1
        self._group = group
        self._rank = None if group is None else group.rank
        self._parcels: dict[tuple[int, int, int, int], Parcel] = {}  # without ranks
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
            stage.gradient_sum, stage.stashed, stage.stashes = None, {}, schedule.kind.stashes
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
            if self._group is not None:
                self._group.finish()
        work.optimizer.settle()
        if self._rank is not None:
            assert isinstance(network, SharedSequential)
            with named:
                for flat in (network.parameters.flat, *work.optimizer.arrays.values()):
                    network.gather(flat, self._placement.parameter_names)
                network.gather_buffers(self._placement.buffer_names[self._rank])
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
        for index, sizes in enumerate(self._placement.boundaries[boundary]):
            shape = size, *(steps if length is None else length for length in sizes)
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
        current = at.free.pop() if at.free else StagePass([at.contexts(item) for item in at.items])
        if stage == 0:
            parcel: Parcel = (device.asarray(np.ascontiguousarray(batch.inputs[samples])),)
        else:
            into = partial(self._into, current.received, stage, size, steps)
            parcel = self._receive(FORWARD, stage, key, into)
        self._ready = time.perf_counter()
        lengths = None
        if batch.lengths is not None:
            lengths = take_lengths(device, batch.lengths[samples], size, steps)
        state = self._network.random_state
        if at.stashes:
            at.stashed[action.batch] = None
        draw = state["key"], state["passes"] + action.batch, action.micro
        made = at.forward(current, parcel, draw, lengths, self._work.settings.method)
        self._alive[(stage, *key)] = current
        if stage < self._last:
            self._put(FORWARD, stage + 1, key, made)
            return
        # Labels that count are those of the batch, also if none of the micro-batch counts.
        label_lengths = None if batch.label_lengths is None else batch.label_lengths[samples]
        counted = int(np.count_nonzero(counted_labels(batch.labels, batch.label_lengths))) or None
        loss, current.gradient = cross_entropy(
            made[0], batch.labels[samples], lengths=label_lengths, counted=counted,
            label_smoothing=self._work.settings.label_smoothing, device=device,
        )  # fmt: skip
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
            parcel = self._receive(BACKWARD, stage, key, into)
        self._ready = time.perf_counter()
        # The parameters have the values with which the batch went forward, as long as it goes back.
        copy, values = at.stashed.pop(action.batch, None), self._network.parameters.flat[at.part]
        if copy is not None:
            present = values.copy()
            values[...] = copy
        at.backward(current, parcel, lambda parcel: self._put(BACKWARD, stage - 1, key, parcel))
        if copy is not None:
            values[...] = present
        current.gradient = None
        at.free.append(current)
        if self._schedule.micro > 1:
            gradients, total = self._network.gradients.flat[at.part], at.gradient_sum
            at.gradient_sum = gradients.copy() if total is None else total + gradients

    def _update(self, action: Action) -> Row | None:
        at, gradients, optimizer = self._stages[action.stage], self._network.gradients, self._work.optimizer
        if self._schedule.micro > 1:
            gradients.flat[at.part], at.gradient_sum = at.gradient_sum, None
        current = [batch for batch, copy in at.stashed.items() if copy is None]
        if current:  # passes in use went forward with the present parameters
            at.stashed.update(dict.fromkeys(current, self._network.parameters.flat[at.part].copy()))
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
            ((loss, before),) = self._receive(UPDATE, stage, (batch, 0), lambda: (np.empty(2),))
            blocked = blocked or bool(before)
        if stage > 0:
            self._put(UPDATE, stage - 1, (batch, 0), (np.array([loss, blocked], np.float64),))
        step = self._work.first + batch
        if not math.isfinite(loss) or blocked:
            reason = "a gradient is not finite" if math.isfinite(loss) else f"the loss is {loss}"
            raise not_finite(f"{reason} at", step, CURE)
        if stage > self._first:
            return None
        row: Row = {"step": step, "epoch": self._work.epoch + 1, "loss": float(loss)}
        rate = self._rates.pop(batch)
        return row if rate is None else {**row, "lr": rate}

    # ---- messages between stages: activations (FORWARD), gradients (BACKWARD), losses (UPDATE) ----

    def _put(self, kind: int, target: int, key: tuple[int, int], parcel: Parcel) -> None:
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
                array = self._network.device.xp.ascontiguousarray(array)
            self._group.isend(array, target, 3 * index + kind)

    def _receive(self, kind: int, stage: int, key: tuple[int, int], into: Callable[[], Parcel]) -> Parcel:
        """Return the arrays that were sent to a stage. Between ranks, those of `into` receive them."""
        if self._group is None:
            return self._parcels.pop((kind, stage, *key))
        parcel, source = into(), stage - 1 if kind == FORWARD else stage + 1
        for index, array in enumerate(parcel):
            self._group.receive(array, source, 3 * index + kind)
        return parcel
