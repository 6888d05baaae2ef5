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
from bppsa_cupy.network.prune import regrow
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.training.captured import CapturedStep, StepResult
from bppsa_cupy.training.losses import cross_entropy
from bppsa_cupy.training.optimizers import Optimizer
from bppsa_cupy.training.schedules import RateSchedule
from bppsa_cupy.training.settings import Settings
from bppsa_cupy.training.sparsity import RigL, kept_share, prune_when_due

Row = dict[str, Any]


@dataclass
class History:
    """Rows of a training, and what its first step ran.

    Each row is a dict: step, epoch, loss; lr with a schedule; gradient_norm with clipping; kept, the share of
    kept weights, with changing masks; test_loss and test_accuracy after evaluations.
    """

    rows: list[Row] = field(default_factory=list)
    ran: dict[str, Any] = field(default_factory=dict)

    @property
    def losses(self) -> np.ndarray:
        """The training loss of each step, (iterations,) float64."""
        return np.array([row["loss"] for row in self.rows])

    def evaluations(self) -> list[Row]:
        """The rows with test_loss and test_accuracy."""
        return [row for row in self.rows if "test_loss" in row]


@dataclass(frozen=True)
class Work:
    """Steps of one epoch.

    Attributes
    ----------
    batches : iterator of Batch
        One batch per step.
    sizes : array of int, (steps,)
        Samples of each batch.
    first : int
        Number of the first step, from 1 over all epochs.
    epoch : int
        Number of the epoch, from 0.
    per_epoch : int
        Steps of a complete epoch.
    history : History
        Receives what the first step ran.
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
        """Set and return the learning rate of a step; None without a schedule."""
        if self._schedule is None:
            return None
        self.optimizer.lr_factor = self._schedule.factor(step - 1, self.per_epoch)
        return float(self.optimizer.lr * self.optimizer.lr_factor)


@runtime_checkable
class Runner(Protocol):
    """Runs the steps of training: a network, or a pipeline."""

    @property
    def network(self) -> Sequential:
        """The network, for evaluation and saving between calls of `steps`."""

    def check(self, optimizer: Optimizer, settings: Settings, batch_size: int) -> None:
        """Raise BppsaError, before the first step, if these settings are not supported."""

    def stop(self, step: int, last: int) -> int:
        """The step, at most `last`, at which a call of `steps` after `step` has to end."""

    def steps(self, work: Work) -> Iterator[Row]:
        """Run the steps and yield their rows, at least one step late. Raises NonFiniteError."""


class Serial:
    """Runs one batch after another through the network."""

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
        sparsity = settings.sparsity
        if work.first == 1:
            prune_when_due(network, sparsity, 0)
        for step, batch in enumerate(work.batches, work.first):
            if isinstance(sparsity, RigL) and sparsity.is_due(step):
                if pending is not None:
                    yield pending()
                pending = None
                make.forget()
                yield self._move_masks(sparsity, work, step, batch)
                continue
            rate = work.set_rate(step)
            result = make(batch.inputs, batch.labels, batch.lengths, label_lengths=batch.label_lengths)
            pruned = prune_when_due(network, sparsity, step)
            if pruned:
                make.forget()
            history.ran = history.ran or what_ran(network)
            if pending is not None:
                yield pending()
            share = kept_share(network) if pruned else None
            pending = partial(row_of, step, work.epoch, result, rate, share)
        if pending is not None:
            yield pending()

    def _move_masks(self, sparsity: RigL, work: Work, step: int, batch: Batch) -> Row:
        """A step that moves masks by the gradients with respect to all weights, and updates nothing; its
        row."""
        network, masks = self.network, self.network.masks
        network.parameters.apply_masks()
        network.set_masks({})  # all weights take part, masked ones by their 0
        try:
            scores = network.forward(batch.inputs, lengths=batch.lengths)
            loss, gradient = cross_entropy(
                scores, batch.labels, lengths=batch.label_lengths, device=network.device,
                label_smoothing=work.settings.label_smoothing,
            )  # fmt: skip
            network.backward(gradient, method="bp")
            value = float(network.device.to_host(loss))
            finite = all(network.device.xp.isfinite(g).all() for g in network.gradients.values())
            gradients = {name: network.gradients[name].copy() for name in masks}
        finally:
            network.set_masks(masks)
        if not math.isfinite(value) or not finite:
            reason = "a gradient is not finite" if math.isfinite(value) else f"the loss is {value}"
            raise not_finite(f"{reason} at", step)
        regrow(network, gradients, sparsity.decayed(step))
        row: Row = {"step": step, "epoch": work.epoch + 1, "loss": value}
        rate = work.set_rate(step)
        return {**row, **({} if rate is None else {"lr": rate}), "kept": kept_share(network)}


def what_ran(network: Sequential) -> dict[str, Any]:
    """Methods, reasons and schedules of the network's last passes, as JSON values."""
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


def row_of(step: int, epoch: int, result: StepResult, rate: float | None, share: float | None = None) -> Row:
    """The row of a step; waits for its values and checks them."""
    value = result.loss
    if not math.isfinite(value) or result.blocked:
        reason = "a gradient is not finite" if math.isfinite(value) else f"the loss is {value}"
        raise not_finite(f"{reason} at", step)
    row: Row = {"step": step, "epoch": epoch + 1, "loss": value}
    if rate is not None:
        row["lr"] = rate
    if result.gradient_norm is not None:
        row["gradient_norm"] = result.gradient_norm
        if not math.isfinite(row["gradient_norm"]):
            raise not_finite("the norm of the gradients is not finite at", step)
    if share is not None:
        row["kept"] = share
    return row


def not_finite(
    reason: str, step: int, cure: str = "lower the learning rate, or look at the input"
) -> NonFiniteError:
    """The error that names a step."""
    return NonFiniteError(f"{reason} step {step}: {cure}")
