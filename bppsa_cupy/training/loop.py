"""Training: epochs over a data set, by any backward method, with a log and checkpoints."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from tqdm import tqdm

from bppsa_cupy.data import Batch, Dataset, Split, batches, number_of_batches
from bppsa_cupy.data.dataset import counted_labels
from bppsa_cupy.errors import ArgumentError, BppsaError, CheckpointError, DataError, NonFiniteError
from bppsa_cupy.network.prune import regrow
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.system.files import check_writable, write_failure, write_text
from bppsa_cupy.training.captured import CapturedStep, StepResult
from bppsa_cupy.training.checkpoint import load_checkpoint, restore, save_checkpoint, snapshot
from bppsa_cupy.training.losses import cross_entropy
from bppsa_cupy.training.optimizers import Optimizer
from bppsa_cupy.training.settings import (
    RateSchedule,
    RigL,
    Settings,
    check_sparsity,
    kept_share,
    prune_when_due,
)

Row = dict[str, Any]


@dataclass
class History:
    """The rows of a training run, and the methods that its first step used.

    Attributes
    ----------
    rows : list of dict
        One row per step, with step, epoch and loss. Some rows also have lr (with a schedule), gradient_norm
        (with clipping), kept (the share of remaining weights, if masks change), and test_loss and
        test_accuracy (at the end of an epoch).
    ran : list of str
        Lines with the methods of the first step and, for recurrent layers, the reasons.

    Examples
    --------
    >>> from bppsa_cupy.training.loop import History
    >>> history = History(rows=[{"step": 1, "epoch": 0, "loss": 2.5}])
    >>> history.losses, history.evaluations()
    (array([2.5]), [])
    """

    rows: list[Row] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)

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


class Serial:
    """Runs one batch after another through the network.

    `train` also accepts other objects with these methods, such as a pipeline.
    """

    def __init__(self, network: Sequential) -> None:
        self.network = network

    def check(self, optimizer: Optimizer, settings: Settings, batch_size: int) -> None:
        """Raise BppsaError if these settings are not supported."""

    def stop(self, step: int, last: int) -> int:
        """Return the step, at most `last`, at which `steps` ends if it starts after `step`."""
        return last

    def steps(self, work: Work) -> Iterator[Row]:
        """Run the steps and yield their rows, at least one step late. Raises NonFiniteError."""
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
            history.ran = history.ran or describe_passes(network)
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
        result = StepResult(lambda: (value, not finite, None))
        row = row_of(step, work.epoch, result, work.set_rate(step))
        regrow(network, gradients, sparsity.decayed(step))
        return {**row, "kept": kept_share(network)}


def describe_passes(network: Sequential) -> list[str]:
    """Return lines with the methods and schedules of the last passes of a network."""
    report, current, lists = network.last_backward, network.last_pass, network.by_kept_weights
    assert report is not None and current is not None
    return [
        *(f"forward over time: {way}" for way in current.forward_ways),
        f"backward: {', '.join([report.method, *report.schedules])}",
        *(f"backward over time: {way}" for way in report.backward_ways),
        *([f"by the list of remaining weights: layers {', '.join(lists)}"] if lists else []),
    ]


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


@np.errstate(over="ignore", invalid="ignore")  # told once, as NonFiniteError
def train(
    trained: Any, dataset: Dataset, optimizer: Optimizer, settings: Settings, resume: Path | None = None
) -> History:
    """Train a network on a data set.

    Parameters
    ----------
    trained : Sequential or Pipeline
        The network to train.
    dataset : Dataset
        Training samples, and test samples that are evaluated after each epoch.
    optimizer : Optimizer
        An optimizer of the network's parameters.
    settings : Settings
        Settings of the training.
    resume : Path, optional
        A checkpoint to continue from. It is overwritten unless `settings` name another file.

    Returns
    -------
    History

    Raises
    ------
    NonFiniteError
        If a loss, a gradient or a parameter to save is NaN or infinite. The message names the step. The last
        checkpoint stays, and the bad gradient changes no parameter.
    DataError
        If the network does not accept the data.
    CheckpointError
        If `resume` is not a checkpoint of this training.
    BppsaError
        If the checkpoint or the log cannot be written.

    Notes
    -----
    The loss is read one step late, so the device never waits. `lr_factor` follows the schedule and is reset
    at the end. On the same device with the same number of threads, resumed training is bit-identical to
    uninterrupted training.

    Examples
    --------
    >>> import os, tempfile, numpy as np, bppsa_cupy as bp
    >>> from bppsa_cupy.data import load
    >>> from bppsa_cupy.training.loop import train
    >>> from bppsa_cupy.training.settings import Settings
    >>> path = os.path.join(tempfile.mkdtemp(), "data.npz")
    >>> np.savez(path, x=np.zeros((8, 3), np.float32), y=np.arange(8) % 2)
    >>> net = bp.Sequential([bp.Linear(3, 2)], input_shape=(3,), device="host")
    >>> sgd = bp.SGD(net.parameters, lr=0.1)
    >>> len(train(net, load(path), sgd, Settings(epochs=2, batch_size=4)).rows)
    4
    """
    runner = Serial(trained) if isinstance(trained, Sequential) else trained
    if resume is not None:
        resume = Path(resume)
        settings = replace(settings, checkpoint=settings.checkpoint or resume)
    network = runner.network
    check_dataset(network, dataset)
    runner.check(optimizer, settings, min(settings.batch_size, len(dataset.train)))
    if settings.sparsity is not None:
        alone = network if isinstance(runner, Serial) else runner
        check_sparsity(alone, settings.method, settings.sparsity)
    if optimizer.parameters is not network.parameters:
        raise ArgumentError("the optimizer updates another network: create it from network.parameters")
    if settings.checkpoint is not None and network.writes:
        check_writable(settings.checkpoint, error=CheckpointError)
    step, good, wanted, ended = 0, resume, False, False
    if resume is not None:
        checkpoint = load_checkpoint(resume)
        try:
            step = restore(network, optimizer, checkpoint, settings, dataset)
        except BppsaError as error:
            raise CheckpointError(f"{resume}: {error}") from error
    size, samples = settings.batch_size, len(dataset.train)
    per_epoch = number_of_batches(dataset.train, size)
    last = settings.last_step(per_epoch)
    history = History()
    shown = settings.progress and network.writes
    # None: on a terminal alone.
    bar = tqdm(total=last, initial=step, unit="step", disable=None if shown else True, dynamic_ncols=True)
    factor = optimizer.lr_factor
    try:
        with TrainingLog(settings.log if network.writes else None, step) as log, bar:
            while step < last and not ended:
                end = min(last, (step // per_epoch + 1) * per_epoch)
                stop = runner.stop(step, end)
                epoch, done = divmod(step, per_epoch)
                source = batches(
                    dataset.train, size, seed=settings.seed, epoch=epoch, start=done, dtype=network.dtype,
                    augment=settings.augment, samples=network.own_samples,
                )  # fmt: skip
                sizes = [min(size, samples - k * size) for k in range(done, done + stop - step)]
                coming = ahead(islice(source, stop - step))
                work = Work(coming, sizes, step + 1, epoch, per_epoch, optimizer, settings, history)
                for row in runner.steps(work):
                    bar.update()
                    bar.set_postfix(loss=f"{row['loss']:.4f}", refresh=False)
                    if row["step"] == end and dataset.test is not None:
                        loss, accuracy = evaluate(network, dataset.test, settings.batch_size)
                        if not math.isfinite(loss):
                            raise not_finite(f"the test loss is {loss} after", stop)
                        row.update(test_loss=loss, test_accuracy=accuracy)
                    if shown and row["step"] == end:
                        bar.write(_describe_epoch(row))
                        sys.stdout.flush()
                    history.rows.append(row)
                    # Batches of an epoch do not grow, so the first row's step is the one that was noted last.
                    log.write(row if log.begun else {**row, "ran": history.ran})
                    wanted |= any([callback(network, row) is True for callback in settings.callbacks])
                step = stop
                if settings.checkpoint is not None and step == end:
                    if not _is_finite(network):
                        raise not_finite("a parameter or buffer is not finite after", step)
                    state = snapshot(network, optimizer, settings, dataset, step, per_epoch)
                    if network.writes:
                        save_checkpoint(settings.checkpoint, state)
                    good = settings.checkpoint
                ended = step == end and network.on_any_rank(wanted)
    except NonFiniteError as error:
        if good is None:
            raise
        raise NonFiniteError(f"{error}; the last good checkpoint is {good}") from error
    finally:
        optimizer.lr_factor = factor
    return history


class TrainingLog:
    """The training log: a text file with one JSON object per row.

    Parameters
    ----------
    path : Path or None
        The file of the log. None writes no log. The first row replaces an older log.
    step : int
        The step that a resumed run continues from. Earlier rows of the log stay.

    Raises
    ------
    BppsaError
        If the file cannot be written.
    DataError
        If a resumed run would overwrite a file that is no log.
    """

    def __init__(self, path: Path | None, step: int = 0) -> None:
        self._path = path
        self._file: io.FileIO | None = None
        self._rows = _rows_up_to(path, step) if path is not None and step and path.is_file() else []
        self.begun = path is None or bool(self._rows)
        if path is not None:
            check_writable(path)

    def write(self, row: Row) -> None:
        """Add a row."""
        if self._path is None:
            return
        self.begun = True
        try:
            if self._file is None:
                write_text(self._path, "".join(self._rows))
                self._file = io.FileIO(self._path, "a")
            self._file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
        except OSError as cause:
            raise BppsaError(write_failure(self._path, cause)) from cause

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _rows_up_to(path: Path, step: int) -> list[str]:
    """The lines of a log's rows up to `step`. A last line that was cut short is dropped.

    Raises DataError for any other line that is no row, since the file would be overwritten.
    """
    rows, lines = [], path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            if json.loads(line)["step"] <= step:
                rows.append(line + "\n")
        except (ValueError, KeyError, TypeError) as cause:
            if number < len(lines) or (number == 1 and not line.startswith("{")):
                raise DataError(
                    f"line {number} of log {path} is not a JSON object with a step: pass another --log"
                ) from cause
    return rows


Item = TypeVar("Item")


def ahead(source: Iterator[Item]) -> Iterator[Item]:
    """Yield the items of `source`, none of them None; a thread computes the next item meanwhile."""
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        coming = thread.submit(next, source, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, source, None)
            yield item


def _describe_epoch(row: Row) -> str:
    """The line of an epoch that has ended."""
    if "test_loss" not in row:
        return f"epoch {row['epoch']}: loss {row['loss']:.4f}"
    return f"epoch {row['epoch']}: test loss {row['test_loss']:.4f}, test accuracy {row['test_accuracy']:.2%}"


def _is_finite(network: Sequential) -> bool:
    """Whether all parameters and buffers are, on every rank."""
    xp, arrays = network.device.xp, (network.parameters.flat, *network.buffers.values())
    return not network.on_any_rank(not all(bool(xp.isfinite(array).all()) for array in arrays))


def evaluate(network: Sequential, split: Split, batch_size: int) -> tuple[float, float]:
    """Return mean loss and accuracy of `network` on `split`, in evaluation mode."""
    total, right, count, current = 0.0, 0, 0, None
    read = batches(split, batch_size, shuffle=False, dtype=network.dtype, samples=network.own_samples)
    was_training = network.training
    network.eval()
    try:
        for batch in ahead(read):
            labels, lengths = batch.labels, batch.label_lengths
            scores = network.forward(batch.inputs, into=current, lengths=batch.lengths, keep=False)
            current = network.last_pass
            loss, _ = cross_entropy(scores, labels, lengths=lengths, device=network.device)
            counted = counted_labels(labels, lengths)
            real = int(np.count_nonzero(counted))
            total, count = total + float(loss) * real, count + real
            right += int((network.device.to_host(scores).argmax(-1) == labels)[counted].sum())
    finally:
        network.training = was_training
    return total / count, right / count


def check_dataset(network: Sequential, dataset: Dataset) -> None:
    """Raise DataError unless the network accepts the data."""
    if tuple(dataset.input_shape) != network.input_shape:
        raise DataError(
            f"{dataset.name} has inputs of shape {tuple(dataset.input_shape)}, but the network needs "
            f"{network.input_shape}: pass --input-shape, or another data set"
        )
    wanted = (*dataset.input_shape[: int(dataset.per_step)], dataset.classes)
    if network.output_shape != wanted:
        where = " and a label at every step" if dataset.per_step else ""
        raise DataError(
            f"{dataset.name} has {dataset.classes} classes{where}, but the output of the network has shape "
            f"{network.output_shape}: use a network with output shape {wanted}"
        )
    if not len(dataset.train):
        raise DataError(f"{dataset.name} has no training samples: pass another data set")
