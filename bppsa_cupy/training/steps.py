"""The steps of an epoch: what a batch does to a network, one batch after another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from bppsa_cupy.data import Batch
from bppsa_cupy.errors import NonFiniteError
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.training.captured import CapturedStep, StepResult
from bppsa_cupy.training.losses import cross_entropy
from bppsa_cupy.training.optimizer import Optimizer
from bppsa_cupy.training.schedules import RateSchedule
from bppsa_cupy.training.settings import Settings
from bppsa_cupy.training.sparsity import MaskChanges, kept_share

Row = dict[str, Any]


@dataclass
class History:
    """What training saw: a dict an iteration (step, epoch, loss; lr, the optimizer's rate, where it follows a
    schedule; gradient_norm, before clipping, where there is any; kept, the share of weights that masks
    keep, where they have changed; test_loss and test_accuracy where the test
    set was evaluated after it), and what ran (`what_ran`) in the first step, empty where there was none."""

    rows: list[Row] = field(default_factory=list)
    ran: dict[str, Any] = field(default_factory=dict)

    @property
    def losses(self) -> np.ndarray:
        """(iterations,) training loss by step, float64."""
        return np.array([row["loss"] for row in self.rows])

    def evaluations(self) -> list[Row]:
        """The rows after which the test set was evaluated."""
        return [row for row in self.rows if "test_loss" in row]


@dataclass(frozen=True)
class Work:
    """Steps of one epoch that are to be made.

    batches    one a step
    sizes      (steps,) the samples of each
    first      the number of the first step, from 1 over all epochs
    epoch      from 0
    per_epoch  steps of a whole epoch
    history    learns what the first step ran
    """

    batches: Iterator[Batch]
    sizes: list[int]
    first: int
    epoch: int
    per_epoch: int
    optimizer: Optimizer
    settings: Settings
    history: History

    @cached_property
    def _schedule(self) -> RateSchedule | None:
        return self.settings.schedule(self.per_epoch)

    def set_rate(self, step: int) -> float | None:
        """Let the optimizer have the rate of a step, and return it; None where it follows no schedule."""
        if self._schedule is None:
            return None
        self.optimizer.lr_factor = self._schedule.factor(step - 1, self.per_epoch)
        return float(self.optimizer.lr * self.optimizer.lr_factor)


@runtime_checkable
class Runner(Protocol):
    """What makes the steps of training: a network on its own, or a pipeline."""

    @property
    def network(self) -> Sequential:
        """The network, to be evaluated and saved between calls of `steps`."""

    def check(self, optimizer: Optimizer, settings: Settings, batch_size: int) -> None:
        """Raise BppsaError where it cannot train so; before the first step."""

    def stop(self, step: int, last: int) -> int:
        """After which step, at most `last`, a call of `steps` that begins after `step` has to end."""

    def steps(self, work: Work) -> Iterator[Row]:
        """Make the steps; the row of each comes a step late, or later. Raises NonFiniteError, naming the
        step."""


class Serial:
    """One batch after another through a whole network."""

    def __init__(self, network: Sequential) -> None:
        self.network = network

    def check(self, optimizer: Optimizer, settings: Settings, batch_size: int) -> None:
        pass

    def stop(self, step: int, last: int) -> int:
        return last

    def steps(self, work: Work) -> Iterator[Row]:
        network, settings, history = self.network, work.settings, work.history
        network.train()
        make = CapturedStep(
            network, work.optimizer, method=settings.method, clip=settings.clip,
            label_smoothing=settings.label_smoothing, gradient_hook=settings.gradient_hook,
        )  # fmt: skip
        pending: Callable[[], Row] | None = None
        changes = MaskChanges(network, settings.sparsity)
        if work.first == 1:
            changes.begin()
        for step, batch in enumerate(work.batches, work.first):
            if changes.grows_at(step):
                if pending is not None:
                    yield pending()
                pending = None
                make.forget()
                yield self._grow(changes, work, step, batch)
                continue
            rate = work.set_rate(step)
            result = make(batch.inputs, batch.labels, batch.lengths, label_lengths=batch.label_lengths)
            pruned = changes.behind(step)
            if pruned:
                make.forget()
            history.ran = history.ran or what_ran(network)
            if pending is not None:
                yield pending()
            kept = kept_share(network) if pruned else None
            pending = partial(row_of, step, work.epoch, result, rate, kept)
        if pending is not None:
            yield pending()

    def _grow(self, changes: MaskChanges, work: Work, step: int, batch: Batch) -> Row:
        """A step that moves masks by the gradients by all weights, and updates nothing; its row."""
        network, settings = self.network, work.settings
        changes.open()
        moved = None
        try:
            scores = network.forward(batch.inputs, lengths=batch.lengths)
            loss, gradient = cross_entropy(
                scores, batch.labels, lengths=batch.label_lengths, device=network.device,
                label_smoothing=settings.label_smoothing,
            )  # fmt: skip
            network.backward(gradient, method="bp")
            value = float(network.device.to_host(loss))
            finite = all(network.device.xp.isfinite(g).all() for g in network.gradients.values())
            if not math.isfinite(value) or not finite:
                found = "a gradient is not finite" if math.isfinite(value) else f"the loss is {value}"
                raise not_finite(f"{found} at", step)
            moved = step
        finally:
            changes.close(moved)
        row: Row = {"step": step, "epoch": work.epoch + 1, "loss": value}
        rate = work.set_rate(step)
        return {**row, **({} if rate is None else {"lr": rate}), "kept": kept_share(network)}


def what_ran(network: Sequential) -> dict[str, Any]:
    """How the network's last passes went, as JSON holds it: method, reason and schedules of the backward
    one; the ways of recurrent layers over time, forward and back; the layers that go by their kept weights.
    """
    report, current = network.last_backward, network.last_pass
    assert report is not None and current is not None
    return {
        "method": report.method,
        "reason": report.reason,
        "schedules": list(report.schedules),
        "forward_ways": list(current.forward_ways),
        "backward_ways": list(report.backward_ways),
        "by_kept_weights": list(network.by_kept_weights),
    }


def row_of(step: int, epoch: int, result: StepResult, rate: float | None, kept: float | None = None) -> Row:
    """The row of a step: waits for its loss, the norm of its gradients and whether it was blocked, and
    checks them."""
    value = result.loss
    if not math.isfinite(value) or result.blocked:
        found = "a gradient is not finite" if math.isfinite(value) else f"the loss is {value}"
        raise not_finite(f"{found} at", step)
    row: Row = {"step": step, "epoch": epoch + 1, "loss": value}
    if rate is not None:
        row["lr"] = rate
    if result.gradient_norm is not None:
        row["gradient_norm"] = result.gradient_norm
        if not math.isfinite(row["gradient_norm"]):
            raise not_finite("the norm of the gradients is not finite at", step)
    if kept is not None:
        row["kept"] = kept
    return row


def not_finite(
    found: str, step: int, cure: str = "lower the learning rate, or look at the input"
) -> NonFiniteError:
    """The error that names a step."""
    return NonFiniteError(f"{found} step {step}: {cure}")
