"""The settings of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.data.batching import check_augmentation
from bppsa_cupy.errors import ArgumentError
from bppsa_cupy.network import METHODS
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.training.losses import check_smoothing
from bppsa_cupy.training.optimizers import check_max_norm
from bppsa_cupy.training.schedules import RateSchedule
from bppsa_cupy.training.sparsity import Sparsity, to_recipe


@dataclass(frozen=True)
class Settings:
    """Settings of a training run.

    Attributes
    ----------
    method : str
        Method of `network.backward`.
    epochs : int
        Number of passes over the training set.
    iterations : int or None
        Maximum number of steps.
    batch_size : int
        Samples per step. The last batch of an epoch may be smaller.
    seed : int
        Seed of the order of samples.
    checkpoint : Path or None
        File written after every epoch. None writes none, or the one that training resumes from.
    log : Path or None
        File with one JSON object per step.
    progress : bool
        Whether to print a line per epoch, and to show a progress bar on a terminal.
    clip : float or None
        Largest 2-norm of all gradients together.
    lr_schedule : str or None
        A `RateSchedule`, such as "warmup:500,cosine".
    augment : str or None
        Random changes of training samples: a name in data.batching.AUGMENTATIONS.
    label_smoothing : float
        See `cross_entropy`.
    sparsity : GradualPruning, RigL or None
        How masks change. Steps at which RigL changes masks skip `gradient_hook` and `clip`.
    gradient_hook : callable or None
        Called with the network after each backward pass, before clipping.
    callbacks : sequence of callable
        Each is called with the network and the row of a step (`History.rows`), one step late. At the end of
        an epoch the row has test_loss and test_accuracy. A callback that returns True ends training after the
        epoch. Over ranks, each rank calls its own.
    command : mapping
        Options of the command that trains, which checkpoints store.

    Raises
    ------
    ArgumentError
        If a value is out of range.
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
    lr_schedule: str | None = None
    augment: str | None = None
    label_smoothing: float = 0.0
    sparsity: Sparsity | None = None
    gradient_hook: Callable[[Sequential], None] | None = None
    callbacks: tuple[Callable[[Sequential, dict[str, Any]], Any], ...] = ()
    command: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in (("epochs", 0), ("batch_size", 1), ("seed", 0), ("iterations", 0)):
            if name != "iterations" or self.iterations is not None:
                as_integer("training", name, getattr(self, name), least, None, error=ArgumentError)
        if self.method not in METHODS:
            raise ArgumentError(f"training got method={self.method!r}: pass one of {', '.join(METHODS)}")
        for name in ("checkpoint", "log"):
            if (path := getattr(self, name)) is not None:
                object.__setattr__(self, name, Path(path))
        if self.clip is not None:
            check_max_norm(self.clip)
        if self.lr_schedule is not None:
            RateSchedule.read(self.lr_schedule)
        if self.augment is not None:
            check_augmentation(self.augment)
        check_smoothing(self.label_smoothing)

    def last_step(self, per_epoch: int) -> int:
        """The total number of steps, with `per_epoch` steps per epoch."""
        steps = self.epochs * per_epoch
        return steps if self.iterations is None else min(steps, self.iterations)

    def schedule(self, per_epoch: int) -> RateSchedule | None:
        """The learning-rate schedule over all steps. Raises ArgumentError if there are too few steps."""
        if self.lr_schedule is None:
            return None
        return RateSchedule.read(self.lr_schedule).over(self.last_step(per_epoch))

    def recipe(self, per_epoch: int) -> dict[str, Any]:
        """Settings that the steps follow from, where they are not the default, as JSON values."""
        schedule = self.schedule(per_epoch)
        return {
            **({} if schedule is None else {"lr_schedule": str(schedule)}),
            **({"augment": self.augment} if self.augment is not None else {}),
            **({"label_smoothing": float(self.label_smoothing)} if self.label_smoothing else {}),
            **({"clip": float(self.clip)} if self.clip is not None else {}),
            **(to_recipe(self.sparsity) if self.sparsity is not None else {}),
        }

    def options(self) -> dict[str, Any]:
        """Settings that may change when training resumes, as JSON values."""
        return {name: getattr(self, name) for name in ("epochs", "iterations", "method")} | dict(self.command)
