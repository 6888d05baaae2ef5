"""Pipelined training: a schedule's actions, run by one process or by ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.devices import Array
from bppsa_cupy.distributed import Group
from bppsa_cupy.distributed.shared import RankBuffers, RankParameters, SharedSequential
from bppsa_cupy.errors import BppsaError, DistributedError
from bppsa_cupy.layers import Context
from bppsa_cupy.network.passes import Pass, take_input
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.pipeline.execution import Run, TraceRow
from bppsa_cupy.pipeline.placement import Placement, with_batch
from bppsa_cupy.pipeline.schedules import SCHEDULES, check_schedule, make_schedule
from bppsa_cupy.pipeline.stage import Stage
from bppsa_cupy.timescan.lengths import take_lengths
from bppsa_cupy.training.optimizers import Optimizer
from bppsa_cupy.training.settings import Settings
from bppsa_cupy.training.steps import Row, Work

#: The tag of activations of forward passes outside of a schedule.
RELAY = 1


class Pipeline:
    """A network cut into stages, for pipelined training. Pass it to `train` instead of the network.

    Parameters
    ----------
    net : Sequential
        The network. Without a group, the pipeline trains this network. With a group, every rank passes the
        same network, and the attribute `network` is the stage of this rank.
    ppv : sequence of int, or int
        The cuts (see `Placement`). K cuts make K + 1 stages.
    schedule : {"stale", "none", "gpipe", "1f1b", "pipedream", "stale-1f1b"}
        The order of forward and backward passes. "stale" uses stale weights (Zhang and Abdelrahman 2020,
        section 3). "none" processes one batch at a time.
    group : Group, optional
        K + 1 ranks, one per stage. None runs all stages in this process and gives the same values.
    micro_batches : int, default: 1
        Number of micro-batches per batch, for "gpipe" and "1f1b". Their sizes differ by at most one sample.
    non_pipelined_after : int, optional
        Number of steps after which the schedule becomes "none" (hybrid training, Zhang and Abdelrahman 2020,
        section 4).
    trace : list, optional
        A list to which the pipeline appends one row per forward or backward pass of a stage.

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
        self.placement = Placement(net, ppv)
        self.schedule, self.micro_batches = schedule, micro_batches
        self.non_pipelined_after = non_pipelined_after
        if non_pipelined_after is not None:
            as_integer("Pipeline", "non_pipelined_after", non_pipelined_after, 0, error=BppsaError)
        self.group, self.trace = group, trace
        self.network = net
        if group is not None:
            if group.size != self.stages:
                raise DistributedError(
                    f"the ppv {self.placement.ppv} makes {self.stages} stages, but the group has "
                    f"{group.size} ranks: start {self.stages} ranks, one per stage, or pass a ppv with "
                    f"{group.size - 1} cuts"
                )
            self.network = StageSequential(net, group, self.placement)
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
        """Raise BppsaError if the pipeline does not support these settings. `train` calls this method."""
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

    def schedule_at(self, step: int) -> str:
        """Return the name of the schedule for the step after `step`."""
        over = self.non_pipelined_after is not None and step >= self.non_pipelined_after
        return "none" if over else self.schedule

    def stop(self, step: int, last: int) -> int:
        """Return the last step, at most `last`, before the schedule changes. `train` calls this method."""
        after = self.non_pipelined_after
        return last if after is None or step >= after else min(last, after)

    def steps(self, work: Work) -> Iterator[Row]:
        """Run training steps, and yield one row per step, a step late. `train` calls this method.

        Raises NonFiniteError, naming the step, if the loss or a gradient is not finite.
        """
        if self._is_running:
            raise BppsaError(
                "an error stopped the pipeline inside a step: create a new bp.Pipeline, and load a "
                "checkpoint into network and optimizer"
            )
        name = self.schedule_at(work.first - 1)
        micro = self.micro_batches if SCHEDULES[name].micro else 1
        schedule = make_schedule(name, self.stages, len(work.sizes), micro)
        work.history.ran = work.history.ran or self._what_runs(name)
        self.network.train()
        if self.network.architecture is not self.placement.architecture:  # the masks are others
            self.placement = Placement(self.network, self.placement.ppv)
            self._make_stages()
        self._is_running = True
        execution = Run(self.network, self.placement, self._stages, self.group, self.trace)
        yield from execution.rows(schedule, work)
        self._is_running = False

    def _what_runs(self, name: str) -> dict[str, Any]:
        """As `what_ran`."""
        how = "simulated by one process" if self.group is None else f"on {self.stages} ranks"
        kind, parts, stages = SCHEDULES[name], self.micro_batches, f"{self.stages} stages"
        micro = f" of {parts} micro-batches" if kind.micro and parts > 1 else ""
        return {
            "method": "bp",
            "reason": f"pipeline {name}{micro}, ppv {self.placement.ppv}, {stages} {how}",
            "schedules": [],
            "forward_ways": [],
            "backward_ways": [],
            "by_kept_weights": list(self.network.by_kept_weights),
        }


class StageSequential(SharedSequential):
    """A network of which this rank has one stage; made by `Pipeline`.

    Every rank calls `forward`, `state_dict`, `load_state_dict` and the optimizer's `state_dict` with the same
    arguments, in the same order. `parameters`, `gradients` and `buffers` are those of the stage, by the
    names of the whole network; `state_dict` is whole. `forward` is for evaluation: the output is given to
    all ranks, and no pass is kept; the pipeline's own passes go back. Raises what `SharedSequential` raises.
    """

    def __init__(self, network: Sequential, group: Group, placement: Placement) -> None:
        shapes, dtype = network.architecture.parameter_shapes(), network.dtype
        owners = {
            name: stage
            for names in (placement.parameter_names, placement.buffer_names)
            for stage, names_of_stage in enumerate(names)
            for name in names_of_stage
        }
        parameters, gradients = (RankParameters(group, dtype, shapes, owners) for _ in range(2))
        buffers = RankBuffers(group, dtype, network.architecture.initial_buffers(), owners)
        super().__init__(network, group, parameters, gradients, buffers, ppv=placement.ppv)
        self.placement = placement
        self._stage = Stage(placement, group.rank, self)
        self._evaluation = self._stage.new_pass()

    def forward(
        self,
        x: Any,
        lengths: Any = None,
        states: Any = None,
        *,
        resets: Any = None,
        into: Pass | None = None,
        keep: bool = True,
    ) -> Array:
        if self.training or states is not None or resets is not None:
            raise DistributedError(
                "a pipelined network supports forward only in evaluation mode, without initial states and "
                "resets: call eval() first, and train with bppsa_cupy.training.loop.train"
            )
        with self.device.naming_memory:
            return self._evaluated(x, lengths)

    def _evaluated(self, x: Any, lengths: Any) -> Array:
        group, xp = self.group, self.device.xp
        inputs = take_input("the network", self.device, self.dtype, x, self.architecture.check_input)
        batch, steps = len(inputs), inputs.shape[1]
        self.parameters.apply_masks()
        group.finish()
        taken = None if lengths is None else take_lengths(self.device, lengths, batch, steps)
        number, last, made = group.rank, group.size - 1, (inputs,)
        if number > 0:
            shapes = with_batch(self.placement.boundaries[number], batch, steps)
            made = tuple(self.device.empty(shape, self.dtype) for shape in shapes)
            for array in made:
                group.receive(array, number - 1, RELAY)
        made = self._stage.forward(self._evaluation, made, lengths=taken, training=False)
        made = tuple(map(xp.ascontiguousarray, made))
        if number < last:
            for array in made:
                group.isend(array, number + 1, RELAY)
            (shape,) = with_batch((self.output_shape,), batch, steps)
            made = (self.device.empty(shape, self.dtype),)
        group.broadcast(made[0], last)
        return made[0]

    def backward(self, *_: Any, **__: Any) -> NoReturn:
        raise DistributedError(
            "a pipelined network cannot run backward outside of training: load its state_dict() into a "
            "Sequential"
        )

    def set_masks(self, masks: Mapping[str, Any]) -> NoReturn:
        raise DistributedError("the masks of a pipelined network cannot change: set them before bp.Pipeline")

    def _contexts(self) -> list[Context]:
        return []
