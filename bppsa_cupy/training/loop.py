"""Training: epochs over a data set, by any backward method, with a log and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from bppsa_cupy.data import Dataset, Split, batches, number_of_batches
from bppsa_cupy.data.ahead import ahead
from bppsa_cupy.data.labels import counted_labels
from bppsa_cupy.errors import BppsaError, CheckpointError, DataError, NonFiniteError
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.system.files import check_writable
from bppsa_cupy.training.checkpoint import load_checkpoint, save_checkpoint
from bppsa_cupy.training.clipping import clip_grad_norm
from bppsa_cupy.training.log import TrainingLog
from bppsa_cupy.training.losses import cross_entropy
from bppsa_cupy.training.optimizers import Optimizer
from bppsa_cupy.training.settings import Settings
from bppsa_cupy.training.state import restore, snapshot


@dataclass
class History:
    """What training saw: a dict an iteration (step, epoch, loss; lr, the optimizer's rate, where it follows a
    schedule; gradient_norm, before clipping, where there is any; test_loss and test_accuracy where the test
    set was evaluated after it), and what ran (`what_ran`) in the first step whose batch was as large as any,
    empty where there was none, with the samples of that batch."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    ran: dict[str, Any] = field(default_factory=dict)
    largest_batch: int = 0

    @property
    def losses(self) -> np.ndarray:
        """(iterations,) training loss by step, float64."""
        return np.array([row["loss"] for row in self.rows])

    def evaluations(self) -> list[dict[str, Any]]:
        """The rows after which the test set was evaluated."""
        return [row for row in self.rows if "test_loss" in row]


@np.errstate(over="ignore", invalid="ignore")  # told once, as NonFiniteError
def train(
    network: Sequential,
    dataset: Dataset,
    optimizer: Optimizer,
    settings: Settings,
    resume: Path | None = None,
) -> History:
    """Train `network` on `dataset` and return the history.

    resume  a checkpoint to go on from; the same device and thread count give the very bits that
            training without a stop gives

    The loss is read back a step late, so that the device never waits. Raises NonFiniteError naming the
    step where a loss, of training or of the test set, a gradient or a parameter that would be saved is NaN or
    infinite; the last checkpoint stays, and parameters that a bad gradient would have changed are as before
    it. Raises DataError where the network does not take the data, CheckpointError where `resume` is not of
    this training, and BppsaError where checkpoint or log cannot be written, all before the first step.
    """
    check_dataset(network, dataset)
    if optimizer.parameters is not network.parameters:
        raise BppsaError("the optimizer holds another network's parameters: make it of network.parameters")
    if settings.checkpoint is not None and network.writes:
        check_writable(settings.checkpoint, error=CheckpointError)
    step, good = 0, resume
    if resume is not None:
        step = restore(network, optimizer, load_checkpoint(resume), settings, dataset)
    per_epoch = number_of_batches(dataset.train, settings.batch_size)
    last = settings.last_step(per_epoch)
    history = History()
    shown = settings.progress and network.writes
    bar = tqdm(total=last, initial=step, unit="step", disable=not shown, dynamic_ncols=True)
    with TrainingLog(settings.log if network.writes else None, step) as log, bar, _telling_of(lambda: good):
        while step < last:
            stop = min(last, (step // per_epoch + 1) * per_epoch)
            for row in _epoch(network, dataset.train, optimizer, settings, step, stop, history):
                bar.update()
                bar.set_postfix(loss=f"{row['loss']:.4f}", refresh=False)
                if row["step"] == stop and dataset.test is not None:
                    loss, accuracy = evaluate(network, dataset.test, settings.batch_size)
                    if not math.isfinite(loss):
                        raise _not_finite(f"the test loss is {loss} after", stop)
                    row.update(test_loss=loss, test_accuracy=accuracy)
                    if shown:
                        bar.write(f"epoch {row['epoch']}: test loss {loss:.4f}, test accuracy {accuracy:.2%}")
                history.rows.append(row)
                # Batches of an epoch do not grow, so the first row's step is the one that was noted last.
                log.write(row if log.begun else {**row, "ran": history.ran})
            step = stop
            if settings.checkpoint is not None:
                if not _is_finite(network):
                    raise _not_finite("a parameter is not finite after", step)
                state = snapshot(network, optimizer, settings, dataset, step, per_epoch)
                if network.writes:
                    save_checkpoint(settings.checkpoint, state)
                good = settings.checkpoint
    return history


def _epoch(
    network: Sequential,
    split: Split,
    optimizer: Optimizer,
    settings: Settings,
    start: int,
    stop: int,
    history: History,
) -> Iterator[dict[str, Any]]:
    """The rows of the steps behind step `start` up to step `stop`, of one epoch; each comes a step late.

    history  learns what the largest batch ran
    """
    network.train()
    size, device = settings.batch_size, network.device
    per_epoch = number_of_batches(split, size)
    schedule, (epoch, done) = settings.schedule(per_epoch), divmod(start, per_epoch)
    source = batches(
        split,
        size,
        seed=settings.seed,
        epoch=epoch,
        start=done,
        dtype=network.dtype,
        augment=settings.augment,
    )
    pending: Callable[[], dict[str, Any]] | None = None
    current = None
    for step, batch in enumerate(ahead(islice(source, stop - start)), start + 1):
        scores = network.forward(batch.inputs, into=current, lengths=batch.lengths)
        current = network.last_pass
        loss, gradient = cross_entropy(
            scores, batch.labels, lengths=batch.label_lengths, device=device,
            label_smoothing=settings.label_smoothing,
        )  # fmt: skip
        network.backward(gradient, method=settings.method)
        if settings.gradient_hook is not None:
            settings.gradient_hook(network)
        norm = None
        if settings.clip is not None:
            norm = device.fetch(clip_grad_norm(network.gradients, settings.clip))
        if schedule is not None:
            optimizer.lr_factor = schedule.factor(step - 1, per_epoch)
        rate = None if schedule is None else float(optimizer.lr * optimizer.lr_factor)
        optimizer.step(network.gradients)
        if len(batch.labels) > history.largest_batch:
            history.ran, history.largest_batch = what_ran(network), len(batch.labels)
        if pending is not None:
            yield pending()
        pending = partial(_row, step, epoch, device.fetch(loss), norm, rate, optimizer.fetch_blocked())
    if pending is not None:
        yield pending()


def what_ran(network: Sequential) -> dict[str, Any]:
    """How the network's last passes went, as JSON holds it: method, reason and schedules of the backward
    one; the ways of recurrent layers over time, forward and back.
    """
    report, current = network.last_backward, network.last_pass
    assert report is not None and current is not None
    return {
        "method": report.method,
        "reason": report.reason,
        "schedules": list(report.schedules),
        "forward_ways": list(current.forward_ways),
        "backward_ways": list(report.backward_ways),
    }


def _row(
    step: int,
    epoch: int,
    loss: Callable[[], np.ndarray],
    norm: Callable[[], np.ndarray] | None,
    rate: float | None,
    blocked: Callable[[], np.ndarray],
) -> dict[str, Any]:
    """The row of a step: waits for its loss, the norm of its gradients and whether it was blocked, and
    checks them."""
    value = float(loss())
    if not math.isfinite(value) or blocked()[0]:
        found = "a gradient is not finite" if math.isfinite(value) else f"the loss is {value}"
        raise _not_finite(f"{found} at", step)
    row: dict[str, Any] = {"step": step, "epoch": epoch + 1, "loss": value}
    if rate is not None:
        row["lr"] = rate
    if norm is not None:
        row["gradient_norm"] = norm().item()
        if not math.isfinite(row["gradient_norm"]):
            raise _not_finite("the norm of the gradients is not finite at", step)
    return row


def _not_finite(found: str, step: int) -> NonFiniteError:
    return NonFiniteError(f"{found} step {step}: lower the learning rate, or look at the input")


@contextmanager
def _telling_of(good: Callable[[], Path | None]) -> Iterator[None]:
    """Add to a NonFiniteError the checkpoint that `good()` gives: one this run has loaded or written."""
    try:
        yield
    except NonFiniteError as error:
        if good() is None:
            raise
        raise NonFiniteError(f"{error}; the last good checkpoint is {good()}") from error


def _is_finite(network: Sequential) -> bool:
    """Whether all parameters are; one reduction on the device, and a wait."""
    device, flat = network.device, network.parameters.flat
    flag = device.zeros((1,), np.int32)
    device.launch(KERNELS["finite_check"], flat, flag, flat.size)
    network.parameters.set_where_any(flag)
    return not device.to_host(flag)[0]


def evaluate(network: Sequential, split: Split, batch_size: int) -> tuple[float, float]:
    """Mean loss and accuracy of `network` on `split`, in evaluation mode; labels by step are those
    that count."""
    was_training = network.training
    network.eval()
    total, right, count, current = 0.0, 0, 0, None
    for batch in ahead(batches(split, batch_size, shuffle=False, dtype=network.dtype)):
        labels, lengths = batch.labels, batch.label_lengths
        scores = network.forward(batch.inputs, into=current, lengths=batch.lengths)
        current = network.last_pass
        loss, _ = cross_entropy(scores, labels, lengths=lengths, device=network.device)
        counted = counted_labels(labels, lengths)
        real = int(np.count_nonzero(counted))
        total, count = total + float(loss) * real, count + real
        right += int((network.device.to_host(scores).argmax(-1) == labels)[counted].sum())
    network.training = was_training
    return total / count, right / count


def check_dataset(network: Sequential, dataset: Dataset) -> None:
    """Raise DataError, naming both sides, where the network does not take the data."""
    if tuple(dataset.input_shape) != network.input_shape:
        raise DataError(
            f"{dataset.name} holds inputs of shape {tuple(dataset.input_shape)}, the network takes "
            f"{network.input_shape}: give --input-shape, or another data set"
        )
    wanted = (*dataset.input_shape[: int(dataset.per_step)], dataset.classes)
    if network.output_shape != wanted:
        where = " and a label at every step" if dataset.per_step else ""
        raise DataError(
            f"{dataset.name} has {dataset.classes} classes{where}, the network's output has shape "
            f"{network.output_shape}: it must be {wanted}"
        )
    if not len(dataset.train):
        raise DataError(f"{dataset.name} has no training samples")
