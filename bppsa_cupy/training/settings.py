"""The settings of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bppsa_cupy.arguments import as_flag, as_integer, as_list, as_path, is_one_of
from bppsa_cupy.data.batching import check_augmentation
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.network import METHODS
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.training.clipping import check_max_norm
from bppsa_cupy.training.losses import check_smoothing
from bppsa_cupy.training.schedules import RateSchedule
from bppsa_cupy.training.sparsity import Sparsity, check_kind, to_recipe


@dataclass(frozen=True)
class Settings:
    """How to train.

    method            of the backward pass, one of network.backward.METHODS
    epochs            passes over the training set; training ends with them or with `iterations`
    iterations        most steps over all, None for no such end
    batch_size        samples a step; an epoch's last batch may be smaller
    seed              of the order of the samples, which follows from seed and epoch alone
    checkpoint        file that every epoch's end, and training's, writes; None for none, and for the one that
                      training goes on from
    log               file that gets one JSON object an iteration; None for none
    progress          whether to print a line on stdout as each epoch ends, and to show a bar on a terminal
    clip              largest 2-norm of all gradients together, None for no clipping
    lr_schedule       what the optimizer's rates are multiplied by (`RateSchedule`), as "warmup:500,cosine"
    augment           random changes of training samples, one of data.augment.AUGMENTATIONS; None for none
    label_smoothing   of the training loss (`cross_entropy`)
    sparsity          how masks change in training: a `GradualPruning`, a `RigL`, or None. `gradient_hook` and
                      `clip` are left out at the steps at which RigL changes them
    gradient_hook     called after each backward pass and before clipping and step, e.g. to perturb gradients
    callbacks         each is called with the network and the row of a step (`History.rows`), once it is
                      known: a step late, but at an epoch's end, whose row has test_loss and
                      test_accuracy, with the network as that step left it. One that returns True ends
                      training after the epoch: its checkpoint is written, and may be gone on from. Over
                      ranks, every rank calls its own, and one that returns True on any of them ends
                      training on all
    command           options of a command that trains, as JSON holds them: checkpoints keep them

    Raises BppsaError for numbers, flags and paths of another kind or range, and for a method, schedule,
    augmentation or smoothing that is none.
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
                as_integer("training", name, getattr(self, name), least, None, error=BppsaError)
        if not is_one_of(self.method, METHODS):
            raise BppsaError(f"method {self.method!r} was asked for: the methods are {', '.join(METHODS)}")
        for name in ("checkpoint", "log"):
            if (path := getattr(self, name)) is not None:
                object.__setattr__(self, name, as_path("training", name, path, error=BppsaError))
        as_flag("training", "progress", self.progress, error=BppsaError)
        if self.gradient_hook is not None and not callable(self.gradient_hook):
            raise BppsaError(
                f"training got gradient_hook={self.gradient_hook!r}: it takes a function of the network"
            )
        if self.clip is not None:
            check_max_norm(self.clip)
        if self.lr_schedule is not None:
            RateSchedule.read(self.lr_schedule)
        if self.augment is not None:
            check_augmentation(self.augment)
        check_smoothing(self.label_smoothing)
        check_kind(self.sparsity)
        takes = "functions of (network, row), as [early_stop]"
        callbacks = tuple(as_list("training", "callbacks", self.callbacks, takes, error=BppsaError))
        for callback in callbacks:
            if not callable(callback):
                raise BppsaError(f"training got {callback!r} among callbacks: it takes {takes}")
        object.__setattr__(self, "callbacks", callbacks)

    def last_step(self, per_epoch: int) -> int:
        """The number of steps in all, where an epoch has `per_epoch`."""
        steps = self.epochs * per_epoch
        return steps if self.iterations is None else min(steps, self.iterations)

    def schedule(self, per_epoch: int) -> RateSchedule | None:
        """The learning rate's schedule over all steps. Raises BppsaError where there are too few, and for a
        rate that grows beyond the range of floats."""
        if self.lr_schedule is None:
            return None
        steps = self.last_step(per_epoch)
        schedule = RateSchedule.read(self.lr_schedule).over(steps)
        schedule.factor(max(steps - 1, 0), per_epoch)
        return schedule

    def recipe(self, per_epoch: int) -> dict[str, Any]:
        """What the steps follow from beside optimizer and order of the samples, as JSON holds it: settings by
        name, those that are not their default."""
        schedule = self.schedule(per_epoch)
        return {
            **({} if schedule is None else {"lr_schedule": str(schedule)}),
            **({"augment": self.augment} if self.augment is not None else {}),
            **({"label_smoothing": float(self.label_smoothing)} if self.label_smoothing else {}),
            **({"clip": float(self.clip)} if self.clip is not None else {}),
            **(to_recipe(self.sparsity) if self.sparsity is not None else {}),
        }

    def options(self) -> dict[str, Any]:
        """What was asked for that may be others when training goes on, as JSON holds it."""
        return {name: getattr(self, name) for name in ("epochs", "iterations", "method")} | dict(self.command)
