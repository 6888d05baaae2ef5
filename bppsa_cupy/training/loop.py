"""Training: epochs over a data set, by any backward method, with a log and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from bppsa_cupy.data import Dataset, Split, batches, number_of_batches
from bppsa_cupy.errors import BppsaError, CheckpointError, DataError, NonFiniteError
from bppsa_cupy.layers import RecurrentContext
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.system.files import check_writable
from bppsa_cupy.training.checkpoint import load_checkpoint, save_checkpoint
from bppsa_cupy.training.log import TrainingLog
from bppsa_cupy.training.losses import counted_labels, cross_entropy
from bppsa_cupy.training.optimizers import Optimizer, check_max_norm, clip_grad_norm
from bppsa_cupy.training.state import restore, snapshot


@dataclass(frozen=True)
class Settings:
    """How to train.

    method            of the backward pass: "auto", "bp", "linear", "blelloch" or "hybrid"
    epochs            passes over the training set; training ends with them or with `iterations`
    iterations        most steps over all, None for no such end
    batch_size        samples a step; an epoch's last batch may be smaller
    seed              of the order of the samples, which follows from seed and epoch alone
    checkpoint        file that every epoch's end, and training's, writes; None for none
    log               file that gets one JSON object an iteration; None for none
    progress          whether to show a progress bar
    clip              largest 2-norm of all gradients together, None for no clipping
    gradient_hook     called after each backward pass and before clipping and step, e.g. to perturb gradients

    Raises BppsaError for a `clip` that is not above 0.
    """

    method: str = "auto"
    epochs: int = 1
    iterations: int | None = None
    batch_size: int = 64
    seed: int = 0
    checkpoint: Path | None = None
    log: Path | None = None
    progress: bool = False
    clip: float | None = None
    gradient_hook: Callable[[Sequential], None] | None = None

    def __post_init__(self) -> None:
        if self.clip is not None:
            check_max_norm(self.clip)


@dataclass
class History:
    """What training saw: a dict an iteration (step, epoch, loss; gradient_norm, before clipping, where
    there is any; test_loss and test_accuracy where the test set was evaluated after it), and what ran
    (`what_ran`) in the first step whose batch was as large as any, empty where there was none."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    ran: dict[str, Any] = field(default_factory=dict)

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
    if settings.checkpoint is not None:
        check_writable(settings.checkpoint, error=CheckpointError)
    step, good = 0, resume
    if resume is not None:
        step = restore(network, optimizer, load_checkpoint(resume), settings, dataset)
    per_epoch = number_of_batches(dataset.train, settings.batch_size)
    last = settings.epochs * per_epoch
    if settings.iterations is not None:
        last = min(last, settings.iterations)
    history, largest = History(), 0
    bar = tqdm(total=last, initial=step, unit="step", disable=not settings.progress, dynamic_ncols=True)
    with TrainingLog(settings.log, step) as log, bar, _telling_of(lambda: good):
        while step < last:
            epoch, done = divmod(step, per_epoch)
            stop = min(last, (epoch + 1) * per_epoch)
            for row in _epoch(network, dataset.train, optimizer, settings, epoch, done, stop - step):
                ran = row.pop("ran")
                left = len(dataset.train) - (row["step"] - 1) % per_epoch * settings.batch_size
                if min(left, settings.batch_size) > largest:
                    history.ran, largest = ran, min(left, settings.batch_size)
                bar.update()
                bar.set_postfix(loss=f"{row['loss']:.4f}", refresh=False)
                if row["step"] == stop and dataset.test is not None:
                    loss, accuracy = evaluate(network, dataset.test, settings.batch_size)
                    if not math.isfinite(loss):
                        raise _not_finite(f"the test loss is {loss} after", stop)
                    row.update(test_loss=loss, test_accuracy=accuracy)
                    if settings.progress:
                        bar.write(f"epoch {epoch + 1}: test loss {loss:.4f}, test accuracy {accuracy:.2%}")
                history.rows.append(row)
                log.write(row if log.begun else {**row, "ran": ran})
            step = stop
            if settings.checkpoint is not None:
                if not _is_finite(network):
                    raise _not_finite("a parameter is not finite after", step)
                save_checkpoint(
                    settings.checkpoint, snapshot(network, optimizer, settings, dataset, step, per_epoch)
                )
                good = settings.checkpoint
    return history


def _epoch(
    network: Sequential,
    split: Split,
    optimizer: Optimizer,
    settings: Settings,
    epoch: int,
    done: int,
    count: int,
) -> Iterator[dict[str, Any]]:
    """The rows of `count` steps of one epoch from its step `done` on; each comes a step late."""
    network.train()
    first = epoch * number_of_batches(split, settings.batch_size) + done + 1
    source = batches(
        split, settings.batch_size, seed=settings.seed, epoch=epoch, start=done, dtype=network.dtype
    )
    pending: Callable[[], dict[str, Any]] | None = None
    current = None
    for step, batch in zip(range(first, first + count), source, strict=False):
        scores = network.forward(batch.inputs, into=current, lengths=batch.lengths)
        current = network.last_pass
        loss, gradient = cross_entropy(
            scores, batch.labels, lengths=batch.label_lengths, device=network.device
        )
        network.backward(gradient, method=settings.method)
        if settings.gradient_hook is not None:
            settings.gradient_hook(network)
        norm = None
        if settings.clip is not None:
            norm = network.device.fetch(clip_grad_norm(network.gradients, settings.clip))
        optimizer.step(network.gradients)
        if pending is not None:
            yield pending()
        ran = what_ran(network)
        pending = _row(step, epoch, network.device.fetch(loss), norm, optimizer.fetch_blocked(), ran)
    if pending is not None:
        yield pending()


def what_ran(network: Sequential) -> dict[str, Any]:
    """How the network's last passes went, as JSON holds it: method, reason and schedules of the backward
    one; of recurrent layers the ways over time, forward (time_walks) and back (time_scans).
    """
    report, current = network.last_backward, network.last_pass
    assert report is not None and current is not None
    return {
        "method": report.method,
        "reason": report.reason,
        "schedules": list(report.schedules),
        "time_walks": [
            f"{index} {type(network.layers[index]).__name__} {line}"
            for index, ctx in enumerate(current.layers)
            if isinstance(ctx, RecurrentContext)
            for line in ctx.forward_ways
        ],
        "time_scans": list(report.backward_ways),
    }


def _row(
    step: int,
    epoch: int,
    loss: Callable[[], np.ndarray],
    norm: Callable[[], np.ndarray] | None,
    blocked: Callable[[], np.ndarray],
    ran: dict[str, Any],
) -> Callable[[], dict[str, Any]]:
    """A call that waits for the step's loss, the norm of its gradients and whether it was blocked, checks
    them and gives its row."""

    def wait() -> dict[str, Any]:
        value = float(loss())
        if not math.isfinite(value) or blocked()[0]:
            found = "a gradient is not finite" if math.isfinite(value) else f"the loss is {value}"
            raise _not_finite(f"{found} at", step)
        row: dict[str, Any] = {"step": step, "epoch": epoch + 1, "loss": value, "ran": ran}
        if norm is not None:
            row["gradient_norm"] = norm().item()
            if not math.isfinite(row["gradient_norm"]):
                raise _not_finite("the norm of the gradients is not finite at", step)
        return row

    return wait


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
    return not device.to_host(flag)[0]


def evaluate(network: Sequential, split: Split, batch_size: int) -> tuple[float, float]:
    """Mean loss and accuracy of `network` on `split`, in evaluation mode; of labels by step, over those
    that count."""
    was_training = network.training
    network.eval()
    total, right, count, current = 0.0, 0, 0, None
    for batch in batches(split, batch_size, shuffle=False, dtype=network.dtype):
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
