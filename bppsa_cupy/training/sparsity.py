"""Masks that change in training: gradual pruning by magnitude, and RigL."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_integer, as_number
from bppsa_cupy.errors import PruneError
from bppsa_cupy.network.prune import A_SHARE, SCOPES, prune
from bppsa_cupy.network.sequential import Sequential


@dataclass(frozen=True)
class GradualPruning:
    """Prune a growing share of the weights during training (Zhu and Gupta 2017, equation 1).

    After the steps t = from_step, from_step + every, … and until_step, the weights of smallest magnitude are
    pruned to the sparsity to + (start - to) (1 - (t - from_step) / (until_step - from_step))³.

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
        See `bp.prune`.

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
            raise PruneError(f"GradualPruning got to={self.to} and start={self.start}: pass to >= start")
        if self.scope not in SCOPES:
            raise PruneError(f"GradualPruning got scope={self.scope!r}: pass 'layer' or 'global'")

    def is_due(self, step: int) -> bool:
        """Return whether masks change after step `step`. The first step is 1."""
        inside = self.from_step <= step <= self.until_step
        return inside and ((step - self.from_step) % self.every == 0 or step == self.until_step)

    def share(self, step: int) -> float:
        """Return the sparsity after step `step`."""
        if step == self.until_step:
            return self.to
        left = 1 - (step - self.from_step) / (self.until_step - self.from_step)
        return self.to + (self.start - self.to) * left**3


@dataclass(frozen=True)
class RigL:
    """Change the positions of the kept weights during training (RigL, Evci et al. 2020).

    At the steps t = every, 2 every, … below until_step, the masks change instead of the parameters. Each
    layer drops the smallest of its kept weights, a share of fraction / 2 (1 + cos(π t / until_step)). The
    same number of masked weights, those with the largest gradients, become kept weights.

    Parameters
    ----------
    until_step : int
        The step from which on masks stay fixed. Evci et al. use three quarters of the training steps.
    every : int, default: 100
        Number of steps between two changes.
    fraction : float, default: 0.3
        The initial share of kept weights to drop.

    Raises
    ------
    PruneError
        If an argument is out of range.

    Notes
    -----
    Dense gradients are computed only at these steps. A weight that was just dropped may be selected again,
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
        """Return the share of each layer's kept weights to drop at step `step`."""
        return self.fraction / 2 * (1 + math.cos(math.pi * step / self.until_step))


Sparsity = GradualPruning | RigL
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
    weights = sum(math.prod(shapes[name]) for name in network.architecture.maskable)
    masked = sum(int(mask.size - np.count_nonzero(mask)) for mask in network.masks.values())
    return 1 - masked / max(weights, 1)


def prune_when_due(network: Sequential, sparsity: Sparsity | None, step: int) -> bool:
    """Prune after a step where gradual pruning is due, and say whether it was."""
    if not isinstance(sparsity, GradualPruning) or not sparsity.is_due(step):
        return False
    prune(network, sparsity.share(step), sparsity.scope)
    return True


def sparsity_of(recipe: Mapping[str, Any]) -> Sparsity | None:
    """What `to_recipe` wrote; None where there is none. Raises PruneError."""
    for name, kind in KINDS.items():
        if name in recipe:
            try:
                return kind(**recipe[name])
            except TypeError as cause:
                raise PruneError(f"{name} is {recipe[name]!r}: {cause}") from cause
    return None


def to_recipe(sparsity: Sparsity) -> dict[str, Any]:
    """As JSON holds it."""
    return {name: asdict(sparsity) for name, kind in KINDS.items() if isinstance(sparsity, kind)}
