"""The settings of training, with learning-rate schedules and changing masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_choice, as_integer, as_number
from bppsa_cupy.data.dataset import check_augmentation
from bppsa_cupy.errors import ArgumentError, PruneError
from bppsa_cupy.network import METHODS
from bppsa_cupy.network.prune import A_SHARE, SCOPES, prune
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.training.losses import check_smoothing
from bppsa_cupy.training.optimizers import check_max_norm

#: The numbers behind each name: integers of at least 1 in capitals, others finite and at least 0.
FORMS = {
    "step": ("EPOCHS", "gamma"),
    "half": ("EPOCHS",),
    "inv": ("gamma", "power"),
    "cosine": ("STEPS",),
    "warmup": ("STEPS",),
}
FORM = (
    "step:EPOCHS:GAMMA, half:EPOCHS, inv:GAMMA:POWER, cosine, cosine:STEPS or warmup:STEPS, joined by commas"
)


@dataclass(frozen=True)
class RateSchedule:
    """A learning-rate schedule: the product of its parts, each used once.

    Notes
    -----
    Parts, where `step` counts the previous steps:

    - "step:EPOCHS:GAMMA": GAMMA ** (epoch // EPOCHS), as PyTorch's StepLR over epochs. "half:EPOCHS" has 0.5.
    - "inv:GAMMA:POWER": (1 + GAMMA step) ** -POWER, as Caffe's "inv".
    - "warmup:STEPS": (step + 1) / STEPS in the first STEPS steps, then 1.
    - "cosine:STEPS": half a cosine from 1 after the warm-up to 0 at step STEPS, as PyTorch's
      CosineAnnealingLR (Loshchilov and Hutter 2017, equation 5). `over` sets missing STEPS.

    The rate depends only on the step number, so resumed training is bit-identical to uninterrupted training.
    """

    parts: tuple[tuple[str, tuple[float, ...]], ...]

    @classmethod
    def read(cls, text: str) -> RateSchedule:
        """Parse a schedule, such as "warmup:500,cosine". Raises ArgumentError naming an unknown part."""
        parts = tuple(_read_part(part.strip()) for part in text.split(","))
        names = [name for name, _ in parts]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ArgumentError(f"the schedule {text!r} has {twice} twice: pass {twice} only once")
        return cls(parts)

    def over(self, steps: int) -> RateSchedule:
        """Return this schedule for training of `steps` steps, which a cosine without STEPS needs.

        Raises ArgumentError if the warm-up leaves no steps to the cosine.
        """
        parts = tuple((name, values or (steps,)) for name, values in self.parts)
        for name, values in parts:
            if name == "cosine" and values[0] <= self._warmup:
                raise ArgumentError(
                    f"the warm-up has {self._warmup} steps, but the cosine ends at step {values[0]}: use a "
                    "shorter warm-up, or train for more steps"
                )
        return RateSchedule(parts)

    @property
    def _warmup(self) -> int:
        return next((int(values[0]) for name, values in self.parts if name == "warmup"), 0)

    def factor(self, step: int, per_epoch: int) -> float:
        """Return the factor of the rate after `step` steps, with `per_epoch` steps per epoch."""
        result, epoch = 1.0, step // per_epoch
        for name, values in self.parts:
            if name == "step":
                result *= values[1] ** (epoch // values[0])
            elif name == "half":
                result *= 0.5 ** (epoch // values[0])
            elif name == "inv":
                result *= (1 + values[0] * step) ** -values[1]
            elif name == "warmup":
                result *= min((step + 1) / values[0], 1.0)
            else:
                done = (step - self._warmup) / (values[0] - self._warmup)
                result *= (1 + math.cos(math.pi * min(max(done, 0.0), 1.0))) / 2
        return result

    def __str__(self) -> str:
        return ",".join(":".join([name, *map(repr, values)]) for name, values in self.parts)


def _read_part(text: str) -> tuple[str, tuple[float, ...]]:
    name, *words = text.split(":")
    form = FORMS.get(name)
    if form is None or (len(words) != len(form) and not (name == "cosine" and not words)):
        raise ArgumentError(f"{text!r} is not a learning-rate schedule: pass {FORM}")
    try:
        values = tuple(
            int(word) if kind.isupper() else float(word) for kind, word in zip(form, words, strict=False)
        )
    except ValueError as cause:
        raise ArgumentError(f"{text!r} is not a learning-rate schedule ({cause}): pass {FORM}") from cause
    for kind, value in zip(form, values, strict=False):
        least = 1 if kind.isupper() else 0
        if not least <= value < math.inf:
            raise ArgumentError(
                f"the schedule {text!r} has {kind.upper()} {value}: pass a finite number of at least {least}"
            )
    return name, values


@dataclass(frozen=True)
class GradualPruning:
    """Prune a growing share of the weights during training (Zhu and Gupta 2017, equation 1).

    After the steps t = from_step, from_step + every, … and until_step, the weights of smallest magnitude are
    pruned to the sparsity `to + (start - to) (1 - (t - from_step) / (until_step - from_step))³`.

    Parameters
    ----------
    to : float
        Final sparsity, the share of pruned weights, such as 0.97.
    until_step : int
        The step of the last pruning.
    from_step : int, default: 0
        The step of the first pruning. 0 means before the first step.
    every : int, default: 100
        Number of steps between two prunings.
    start : float, default: 0.0
        Sparsity at the first pruning.
    scope : {"layer", "global"}, default: "layer"
        "layer" prunes each layer to this sparsity, "global" all layers together with one threshold.

    Raises
    ------
    PruneError
        If an argument is out of range.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> schedule = bp.GradualPruning(to=0.8, until_step=200)
    >>> [round(schedule.share(step), 4) for step in (0, 100, 200)]
    [0.0, 0.7, 0.8]
    """

    to: float
    until_step: int
    from_step: int = 0
    every: int = 100
    start: float = 0.0
    scope: str = "layer"

    def __post_init__(self) -> None:
        for name in ("to", "start"):
            as_number("pruning", name, getattr(self, name), lambda v: 0 <= v <= 1, A_SHARE, error=PruneError)
        for name, least in (("from_step", 0), ("every", 1), ("until_step", self.from_step)):
            as_integer("pruning", name, getattr(self, name), least, error=PruneError)
        if self.to < self.start:
            raise PruneError(f"GradualPruning got start={self.start} and to={self.to}: pass start <= to")
        as_choice("GradualPruning", "scope", self.scope, SCOPES, error=PruneError)

    def is_due(self, step: int) -> bool:
        """Return whether masks change after step `step`. The first step is 1."""
        inside = self.from_step <= step <= self.until_step
        return inside and ((step - self.from_step) % self.every == 0 or step == self.until_step)

    def share(self, step: int) -> float:
        """Return the sparsity to which the weights are pruned after step `step`."""
        if step == self.until_step:
            return self.to
        left = 1 - (step - self.from_step) / (self.until_step - self.from_step)
        return self.to + (self.start - self.to) * left**3


@dataclass(frozen=True)
class RigL:
    """Change the positions of the remaining weights during training (RigL, Evci et al. 2020).

    At the steps t = every, 2 every, … below until_step, the masks change instead of the parameters. In each
    layer, a share (fraction / 2) (1 + cos(π t / until_step)) of the remaining weights is masked: those with
    the smallest magnitudes. As many masked weights are unmasked: those with the largest gradients.

    Parameters
    ----------
    until_step : int
        The masks do not change at this step or later. Evci et al. use 3/4 of the number of training steps.
    every : int, default: 100
        Number of steps between two changes.
    fraction : float, default: 0.3
        The initial share of remaining weights to mask at one step.

    Raises
    ------
    PruneError
        If an argument is out of range.

    Notes
    -----
    Dense gradients are computed only at these steps. A weight that was just masked may be selected again,
    and then keeps its value. Other new weights start at 0, with optimizer state 0.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> schedule = bp.RigL(until_step=200)
    >>> [round(schedule.decayed(step), 4) for step in (0, 100, 200)]
    [0.3, 0.15, 0.0]
    """

    until_step: int
    every: int = 100
    fraction: float = 0.3

    def __post_init__(self) -> None:
        as_number("RigL", "fraction", self.fraction, lambda v: 0 <= v <= 1, A_SHARE, error=PruneError)
        for name, least in (("every", 1), ("until_step", 1)):
            as_integer("RigL", name, getattr(self, name), least, error=PruneError)

    def is_due(self, step: int) -> bool:
        """Return whether masks change at step `step`. The first step is 1."""
        return step % self.every == 0 and step < self.until_step

    def decayed(self, step: int) -> float:
        """Return the share of each layer's remaining weights that is masked at step `step`."""
        return self.fraction / 2 * (1 + math.cos(math.pi * step / self.until_step))


Sparsity = GradualPruning | RigL
#: By the names in checkpoints.
KINDS: dict[str, type[Sparsity]] = {"pruning": GradualPruning, "rigl": RigL}


def check_sparsity(network: Any, method: str, sparsity: Sparsity) -> None:
    """Raise PruneError if masks cannot change in this training: ranks, a plan, a pipeline, or no masks."""
    name = "a pruning schedule" if isinstance(sparsity, GradualPruning) else "RigL"
    if type(network) is not Sequential:
        raise PruneError(
            f"{name} cannot change the masks of a {type(network).__name__}: train a Sequential, without "
            "ranks, micro-batches or a pipeline"
        )
    if method not in ("auto", "bp"):
        raise PruneError(
            f"{name} changes masks, but method {method!r} needs a plan for fixed masks: pass 'bp' or 'auto'"
        )
    if network.plan_in_use is not None:
        raise PruneError(
            f"{name} changes masks, but the plan in use is for fixed masks: train without a plan"
        )
    if isinstance(sparsity, RigL) and not network.masks:
        raise PruneError("RigL needs a network with masks: call bp.prune(net, 0.95) first, for example")


def kept_share(network: Sequential) -> float:
    """The share of prunable weights that is kept."""
    shapes = network.parameters.layout.shapes
    weights = sum(math.prod(shapes[name]) for name in network.architecture.weighted)
    masked = sum(int(mask.size - np.count_nonzero(mask)) for mask in network.masks.values())
    return 1 - masked / max(weights, 1)


def prune_when_due(network: Sequential, sparsity: Sparsity | None, step: int) -> bool:
    """Prune after a step where gradual pruning is due, and say whether it was."""
    if not isinstance(sparsity, GradualPruning) or not sparsity.is_due(step):
        return False
    prune(network, sparsity.share(step), sparsity.scope)
    return True


@dataclass(frozen=True)
class Settings:
    """Settings of a training run.

    Parameters
    ----------
    method : str, default: "auto"
        The argument `method` of `network.backward`.
    epochs : int, default: 1
        Number of passes over the training set.
    iterations : int, optional
        Maximum number of steps.
    batch_size : int, default: 64
        Samples per step. The last batch of an epoch may be smaller.
    seed : int, default: 0
        Seed of the order of samples.
    checkpoint : path, optional
        File to write after every epoch. By default no file, or the file that training resumes from.
    log : path, optional
        File with one JSON object per step.
    progress : bool, default: False
        Whether to print a line per epoch, and to show a progress bar on a terminal.
    clip : float, optional
        Largest 2-norm of all gradients together. By default gradients are not clipped.
    lr_schedule : str, optional
        A schedule in the form of `bppsa-train --lr-schedule`, such as "warmup:500,cosine".
    augment : {"crop-flip"}, optional
        Random changes of the training images.
    label_smoothing : float, default: 0.0
        The argument `label_smoothing` of `bp.cross_entropy`.
    sparsity : GradualPruning or RigL, optional
        How masks change. Steps at which RigL changes masks skip `gradient_hook` and `clip`.
    gradient_hook : callable, optional
        Called with the network after each backward pass, before clipping.
    callbacks : sequence of callable, default: ()
        Each is called with the network and the row of a step (`History.rows`), one step late. At the end of
        an epoch the row has test_loss and test_accuracy. A callback that returns True ends training after the
        epoch. With several ranks, each rank calls its callbacks.
    command : mapping, default: {}
        Options of `bppsa-train`, which checkpoints store.

    Raises
    ------
    ArgumentError
        If a value is out of range.

    Examples
    --------
    >>> from bppsa_cupy.training.settings import Settings
    >>> Settings(epochs=3, clip=1.0).batch_size
    64
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
        as_choice("training", "method", self.method, METHODS)
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
        """Settings that determine the steps and differ from their defaults, as JSON values."""
        schedule = self.schedule(per_epoch)
        return {
            **({} if schedule is None else {"lr_schedule": str(schedule)}),
            **({"augment": self.augment} if self.augment is not None else {}),
            **({"label_smoothing": float(self.label_smoothing)} if self.label_smoothing else {}),
            **({"clip": float(self.clip)} if self.clip is not None else {}),
            **{
                name: asdict(self.sparsity) for name, kind in KINDS.items() if isinstance(self.sparsity, kind)
            },
        }

    def options(self) -> dict[str, Any]:
        """Settings that may change when training resumes, as JSON values."""
        return {name: getattr(self, name) for name in ("epochs", "iterations", "method")} | dict(self.command)
