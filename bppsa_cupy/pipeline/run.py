"""Pipelined training: a schedule's actions, run by one process or by ranks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from bppsa_cupy.arguments import as_flag, as_instance, as_integer
from bppsa_cupy.distributed import Group
from bppsa_cupy.errors import BppsaError, DistributedError
from bppsa_cupy.layers.norms import BatchNorm
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.pipeline.execution import Execution
from bppsa_cupy.pipeline.items import Item
from bppsa_cupy.pipeline.network import StageSequential
from bppsa_cupy.pipeline.placement import Placement
from bppsa_cupy.pipeline.schedules import SCHEDULES, check_schedule, make_schedule
from bppsa_cupy.pipeline.trace import Trace
from bppsa_cupy.training.optimizer import Optimizer
from bppsa_cupy.training.settings import Settings
from bppsa_cupy.training.steps import Row, Work


class Pipeline:
    """A network cut into stages, which batches of training go through by a schedule; `train` takes it in
    place of the network.

    net        a Sequential. Without a group it is trained itself; with one every rank gives the same, of the
               same seed or state, and `network` is this rank's part
    ppv        where it is cut, as `Placement` takes it: K cuts make K + 1 stages
    schedule   one of SCHEDULES: "stale" (the paper's section 3), "none" (non-pipelined), "gpipe", "1f1b",
               "pipedream", "stale-1f1b"
    group      of K + 1 ranks, one per stage, which run at the same time; None runs all stages in this
               process, with the same values
    micro_batches  of a batch, for schedules that have them: they differ by one sample at most, and weigh by
               their size
    predict    whether forward passes with stale weights take W − lr · s · velocity in place of the weights
               W, s their staleness; for SGD with momentum
    non_pipelined_after  steps after which training goes on by the schedule "none" (the paper's section 4,
               hybrid training); None for no such end
    trace      a Trace that gets the time of every action

    Each epoch, and each change of the schedule, begins and ends with an empty pipeline. Where an error, such
    as a device out of memory, breaks a run off in one process, schedules that end each batch with an empty
    pipeline leave parameters, buffers, random state and the optimizer's state as the last whole step did. By
    the others ("stale", "stale-1f1b", "pipedream") stages are at different steps then, and training raises
    BppsaError until a state was loaded into network and optimizer.

    Raises BppsaError for arguments that do not fit, and DistributedError where there are not as many ranks;
    with a group it is collective.
    """

    def __init__(
        self,
        net: Sequential,
        ppv: Sequence[int] | int,
        schedule: str = "stale",
        group: Group | None = None,
        *,
        micro_batches: int = 1,
        predict: bool = False,
        non_pipelined_after: int | None = None,
        trace: Trace | None = None,
    ) -> None:
        as_instance("Pipeline", "a network", net, Sequential, "a Sequential", error=BppsaError)
        for name, value, kind in (("group", group, Group), ("trace", trace, Trace)):
            if value is not None:
                as_instance("Pipeline", name, value, kind, f"a {kind.__name__}, or None", error=BppsaError)
        check_schedule(schedule, micro_batches)
        self.placement = Placement(net, ppv)
        self.schedule, self.micro_batches = schedule, micro_batches
        self.predict = as_flag("Pipeline", "predict", predict, error=BppsaError)
        if self.predict and not SCHEDULES[schedule].stale:
            takes = ", ".join(name for name, kind in SCHEDULES.items() if kind.stale)
            raise BppsaError(f"predict is of schedules with stale weights, {takes}: {schedule!r} has none")
        self.non_pipelined_after = non_pipelined_after
        if non_pipelined_after is not None:
            as_integer("Pipeline", "non_pipelined_after", non_pipelined_after, 0, error=BppsaError)
        self.group, self.trace = group, trace
        self.network = net
        if group is not None:
            if group.size != self.stages:
                raise DistributedError(
                    f"the pipeline has {self.stages} stages by ppv {self.placement.ppv} and the group "
                    f"{group.size} ranks: start {self.stages}, one a stage, or give {group.size - 1} cuts"
                )
            self.network = StageSequential(net, group, self.placement)
        self._execution = self._new_execution()
        self._broken_at: int | None = None

    def _new_execution(self) -> Execution:
        group = self.group
        own = range(self.stages) if group is None else range(group.rank, group.rank + 1)
        return Execution(self.placement, self.network, own, group, self.trace)

    @property
    def stages(self) -> int:
        """K + 1."""
        return len(self.placement.stages)

    def check(self, optimizer: Optimizer, settings: Settings, batch_size: int) -> None:
        if settings.method not in ("auto", "bp"):
            raise BppsaError(
                f"method {settings.method!r} was asked for: a pipeline goes back by bp; leave the method out"
            )
        for name, given in (("clip", settings.clip), ("gradient_hook", settings.gradient_hook)):
            if given is not None:
                raise BppsaError(
                    f"{name} takes all gradients of a step together, and the stages of a pipeline are at "
                    f"different steps: leave {name} out"
                )
        if self.micro_batches > batch_size:
            raise BppsaError(
                f"{self.micro_batches} micro-batches of a batch of {batch_size} were asked for: a batch "
                "holds a sample each at least"
            )
        if self.predict:
            optimizer.predict(1, slice(0, 0))
        normalizes = self.network.writes and any(map(_normalizes, self._items()))
        if self.micro_batches > 1 and normalizes:
            warnings.warn(
                f"{self.schedule} with BatchNorm: its statistics are those of a micro-batch, "
                f"{batch_size / self.micro_batches:.4g} samples, and not of the batch",
                stacklevel=4,  # where `train` was called
            )

    def _items(self) -> Iterator[Item]:
        return (item for items in self.placement.stages for item in items)

    def schedule_at(self, step: int) -> str:
        """The name of the schedule that the step after `step` goes by."""
        over = self.non_pipelined_after is not None and step >= self.non_pipelined_after
        return "none" if over else self.schedule

    def stop(self, step: int, last: int) -> int:
        after = self.non_pipelined_after
        return last if after is None or step >= after else min(last, after)

    def steps(self, work: Work) -> Iterator[Row]:
        self._check_whole(work.optimizer)
        name = self.schedule_at(work.first - 1)
        micro = self.micro_batches if SCHEDULES[name].micro else 1
        schedule = make_schedule(name, self.stages, len(work.sizes), micro)
        history = work.history
        if work.sizes and work.sizes[0] > history.largest_batch:
            history.ran, history.largest_batch = self._what_runs(name), work.sizes[0]
        self.network.train()
        if self.network.architecture is not self.placement.architecture:  # the masks are others
            self.placement = Placement(self.network, self.placement.ppv)
            self._execution = self._new_execution()
        rows = self._execution.run(schedule, work, self.predict and SCHEDULES[name].stale)
        return self._noting_breaks(rows)

    def _noting_breaks(self, rows: Iterator[Row]) -> Iterator[Row]:
        """The rows; a run that ends between whole steps is noted."""
        execution = self._execution
        try:
            yield from rows
        finally:
            self._broken_at = None if execution.whole else self.network.parameters.version

    def _check_whole(self, optimizer: Optimizer) -> None:
        """Raise BppsaError where a run was broken off and neither parameters nor state were set since."""
        if self._broken_at is None:
            return
        if optimizer.uneven or self._broken_at == self.network.parameters.version:
            raise BppsaError(
                "the pipeline was broken off between whole steps: load a checkpoint, or "
                "a state into network and optimizer (load_state_dict), or make another bp.Pipeline to go on "
                "with the values as they are"
            )

    def _what_runs(self, name: str) -> dict[str, Any]:
        """As `what_ran`."""
        how = "simulated by one process" if self.group is None else f"on {self.stages} ranks"
        kind, parts, stages = SCHEDULES[name], self.micro_batches, f"{self.stages} stages"
        micro = f" of {parts} micro-batches" if kind.micro and parts > 1 else ""
        predicted = ", with predicted weights" if self.predict and kind.stale else ""
        return {
            "method": "bp",
            "reason": f"pipeline {name}{micro}, ppv {self.placement.ppv}, {stages} {how}{predicted}",
            "schedules": [],
            "forward_ways": [],
            "backward_ways": [],
            "by_kept_weights": list(self.network.by_kept_weights),
        }


def _normalizes(item: Item) -> bool:
    """Whether an item holds batch normalisation, also inside of a block."""
    return any(name.endswith("running_mean") for name in item.buffer_names) or isinstance(
        item.layer, BatchNorm
    )
