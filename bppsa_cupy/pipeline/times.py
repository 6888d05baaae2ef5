"""How long the stages of a pipeline take, predicted or measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from bppsa_cupy.distributed.balance import STEPS
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.pipeline.placement import Placement, item_times
from bppsa_cupy.pipeline.schedules import BACKWARD, FORWARD, KINDS, UPDATE, WEIGHTS
from bppsa_cupy.plan import cost_model_of


@dataclass(frozen=True)
class StageTimes:
    """Seconds by stage of one action each.

    forward   of a pass, of a batch or a micro-batch
    backward  of its way back
    update    of the parameters
    sent      from the beginning of the way back until the gradient for the stage before is there: the
              parameters' gradients are worked out after it
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    update: tuple[float, ...]
    sent: tuple[float, ...]

    def __post_init__(self) -> None:
        rows = {name: getattr(self, name) for name in ("forward", "backward", "update", "sent")}
        lengths = {name: len(row) for name, row in rows.items()}
        if len(set(lengths.values())) > 1:
            text = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise BppsaError(f"stage times are of one number of stages: {text} were given")
        if not all(math.isfinite(value) and value >= 0 for row in rows.values() for value in row):
            raise BppsaError(f"stage times are seconds from 0 on: got {rows}")

    @property
    def stages(self) -> int:
        return len(self.forward)

    def by_stage(self, micro: int = 1) -> tuple[float, ...]:
        """The seconds of a batch of so many micro-batches on each stage."""
        rows = zip(self.forward, self.backward, self.update, strict=True)
        return tuple(micro * (forward + backward) + update for forward, backward, update in rows)

    def by_kind(self, *, split: bool = False) -> tuple[tuple[float, ...], ...]:
        """The seconds of an action of each of KINDS by stage; where the way back is split, of its halves."""
        weights = tuple(whole - sent for whole, sent in zip(self.backward, self.sent, strict=True))
        return self.forward, self.sent if split else self.backward, self.update, weights

    def scaled(self, share: float) -> StageTimes:
        """Passes that take this share of the time, and updates as long."""
        forward, backward, sent = (
            tuple(share * value for value in row) for row in (self.forward, self.backward, self.sent)
        )
        return StageTimes(forward, backward, self.update, sent)


def predicted_times(placement: Placement, device: str, samples: int, dtype: np.dtype) -> StageTimes:
    """Of passes of so many samples, by the device's cost model."""
    rows = [
        np.array([item_times(item, device, samples) for item in items]).reshape(-1, 3).sum(axis=0)
        for items in placement.stages
    ]
    forward, vjp, gradients = np.array(rows).T.tolist()
    model = cost_model_of(device)
    # An update reads parameters, gradients and state, and writes the first and the last.
    update = [
        model.work_seconds("vjp", own, 5 * dtype.itemsize * own) + model.seconds_per_call if own else 0.0
        for own in placement.weights
    ]
    backward = [v + g for v, g in zip(vjp, gradients, strict=True)]
    return StageTimes(tuple(forward), tuple(backward), tuple(update), tuple(vjp))


def message_seconds(placement: Placement, device: str, samples: int, dtype: np.dtype) -> tuple[float, ...]:
    """What a parcel takes from each stage to the next, or its gradients back, by the device's link."""
    link = cost_model_of(device).link
    return tuple(
        float(link.seconds(dtype.itemsize * sum(map(math.prod, boundary.of_batch(samples, STEPS)))))
        for boundary in placement.boundaries[1:]
    )


def measured_times(events: Iterable[Mapping[str, Any]], stages: int) -> StageTimes:
    """The medians of a trace's actions, of a whole batch: those of its micro-batches together.

    events  as `Trace.events` gives them, and its file holds them under "traceEvents"

    When a gradient was sent is not in a trace: it is taken to be sent at the end of the way back, or of its
    first half where the trace has both. Raises BppsaError where the trace is of another number of stages.
    """
    worked = [event for event in events if event["cat"] in KINDS]
    micro = 1 + max((event["args"]["micro"] for event in worked), default=0)
    # Batches that went through whole, after a change of the schedule, are left aside.
    cut = {event["args"]["batch"] for event in worked if event["args"]["micro"] == micro - 1}
    found: dict[tuple[str, int], list[float]] = {}
    for event in worked:
        if event["args"]["batch"] in cut:
            found.setdefault((event["cat"], int(event["tid"])), []).append(event["dur"] / 1e6)
    there = 1 + max((stage for _, stage in found), default=-1)
    kinds = [kind for kind in KINDS if kind != KINDS[WEIGHTS] or any(of == kind for of, _ in found)]
    missing = [
        f"{kind} of stage {stage}" for stage in range(stages) for kind in kinds if (kind, stage) not in found
    ]
    if missing or there != stages:
        lack = f", without {missing[0]}" if missing else ""
        raise BppsaError(f"the trace has {there} stages{lack}: the pipeline has {stages}")
    rows = {kind: tuple(median(found[kind, stage]) for stage in range(stages)) for kind in kinds}
    sent, weights = rows[KINDS[BACKWARD]], rows.get(KINDS[WEIGHTS], (0.0,) * stages)
    backward = tuple(map(sum, zip(sent, weights, strict=True)))
    return StageTimes(rows[KINDS[FORWARD]], backward, rows[KINDS[UPDATE]], sent).scaled(micro)


def measured_bubbles(events: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """By rank, the share of the time of a trace in which it ran no action."""
    busy: dict[int, float] = {}
    for event in events:
        worked = event["dur"] if event["cat"] in KINDS else 0.0
        busy[event["pid"]] = busy.get(event["pid"], 0.0) + worked
    first = min((event["ts"] for event in events), default=0.0)
    last = max((event["ts"] + event["dur"] for event in events), default=0.0)
    return (
        {rank: 1 - worked / (last - first) for rank, worked in sorted(busy.items())} if last > first else {}
    )
