"""The settings of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.training.clipping import check_max_norm


@dataclass(frozen=True)
class Settings:
    """How to train.

    method            of the backward pass, one of network.backward.METHODS
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

    def last_step(self, per_epoch: int) -> int:
        """The number of steps in all, where an epoch has `per_epoch`."""
        steps = self.epochs * per_epoch
        return steps if self.iterations is None else min(steps, self.iterations)
