"""Masks that change in training: gradual pruning by magnitude, and RigL."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_integer, as_number, is_one_of
from bppsa_cupy.errors import BppsaError, PruneError
from bppsa_cupy.network.prune import A_SHARE, SCOPES, prune, regrow
from bppsa_cupy.network.sequential import Sequential


@dataclass(frozen=True)
class GradualPruning:
    """Prune weights of the smallest magnitude, more and more, along a cubic (Zhu and Gupta 2017, equation 1):
    after steps t = from_step, from_step + every, … and until_step, of all weights the share

        to + (start - to) (1 - (t - from_step) / (until_step - from_step))^3

    to          the share that is pruned in the end, as 0.97
    until_step  the step after which it is
    from_step   the step after which pruning begins; 0 is before the first one
    every       steps between two prunings
    start       the share that is pruned when it begins
    scope       as `bp.prune` takes it

    A step's share follows from its number alone. Raises PruneError for arguments of another kind or range.
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
            raise PruneError(
                f"pruning got to={self.to} and start={self.start}: what is pruned stays so, give a larger to"
            )
        if not is_one_of(self.scope, SCOPES):
            raise PruneError(f"pruning got scope={self.scope!r}: it takes 'layer' or 'global'")

    def is_due(self, step: int) -> bool:
        """Whether masks change after a step, of which the first is 1."""
        inside = self.from_step <= step <= self.until_step
        return inside and ((step - self.from_step) % self.every == 0 or step == self.until_step)

    def share(self, step: int) -> float:
        """The share that is pruned after a step at which pruning is due."""
        if step == self.until_step:
            return self.to
        left = 1 - (step - self.from_step) / (self.until_step - self.from_step)
        return self.to + (self.start - self.to) * left**3


@dataclass(frozen=True)
class RigL:
    """Move what masks keep (Evci et al. 2020): at steps every, 2 every, … below until_step, in place of the
    optimizer's update, the weights of the smallest magnitude are dropped in every layer, and as many that are
    masked grow, those whose gradients are the largest. The gradients by all weights are taken at those steps
    alone. Of step t the share `decayed(t)` of a layer's kept weights is dropped,

        fraction / 2 (1 + cos(π t / until_step))

    until_step  where it ends; the paper takes three quarters of training
    every       steps between two changes
    fraction    dropped at first

    Of the largest gradients some may be of weights that were dropped just now: these stay. Others begin at
    0, as does what an optimizer keeps of them. Raises PruneError for arguments of another kind or range.
    """

    until_step: int
    every: int = 100
    fraction: float = 0.3

    def __post_init__(self) -> None:
        as_number("RigL", "fraction", self.fraction, lambda v: 0 <= v <= 1, A_SHARE, error=PruneError)
        for name, least in (("every", 1), ("until_step", 1)):
            as_integer("RigL", name, getattr(self, name), least, error=PruneError)

    def is_due(self, step: int) -> bool:
        """Whether masks change at a step, of which the first is 1."""
        return step % self.every == 0 and step < self.until_step

    def decayed(self, step: int) -> float:
        """The share of a layer's kept weights that is dropped at a step."""
        return self.fraction / 2 * (1 + math.cos(math.pi * step / self.until_step))


Sparsity = GradualPruning | RigL
KINDS: dict[str, type[Sparsity]] = {"pruning": GradualPruning, "rigl": RigL}


def check_sparsity(network: Any, method: str, sparsity: Sparsity) -> None:
    """Raise PruneError where masks cannot change in training: over ranks, in micro-batches or a pipeline, by
    a plan or a method that takes one; and where RigL has no masks to change."""
    told = "a pruning schedule" if isinstance(sparsity, GradualPruning) else "RigL"
    if type(network) is not Sequential:
        raise PruneError(
            f"{told} changes masks in training, which a {type(network).__name__} does not: train a "
            "Sequential, without ranks, micro-batches and pipeline"
        )
    if method not in ("auto", "bp"):
        raise PruneError(
            f"{told} changes masks, and a plan is of fixed ones: give method 'bp' or 'auto', not {method!r}"
        )
    if network.plan_in_use is not None:
        raise PruneError(f"{told} changes masks, and the plan in use is of fixed ones: train without a plan")
    if isinstance(sparsity, RigL) and not network.masks:
        raise PruneError("RigL moves what masks keep, and the network has none: bp.prune(net, 0.95) before")


def kept_share(network: Sequential) -> float:
    """The share of the weights that may be masked that is kept."""
    shapes = network.parameters.layout.shapes
    weights = sum(math.prod(shapes[name]) for name in network.architecture.maskable)
    masked = sum(int(mask.size - np.count_nonzero(mask)) for mask in network.masks.values())
    return 1 - masked / max(weights, 1)


class MaskChanges:
    """What masks do in the steps of a training. `sparsity` None: nothing."""

    def __init__(self, network: Sequential, sparsity: Sparsity | None) -> None:
        self.network, self.sparsity = network, sparsity
        self._given: dict[str, np.ndarray] = {}

    def begin(self) -> None:
        """Before the first step of a training."""
        self.behind(0)

    def grows_at(self, step: int) -> bool:
        """Whether a step takes gradients by all weights and moves masks, in place of an update."""
        return isinstance(self.sparsity, RigL) and self.sparsity.is_due(step)

    def open(self) -> None:
        """Let all weights take part, those of the masks by their 0."""
        self.network.parameters.apply_masks()
        self._given = self.network.masks
        self.network.set_masks({})

    def close(self, step: int | None) -> None:
        """Move the masks by the gradients of a pass by all weights, or without a step set them back."""
        of = self._given if step is not None else ()
        gradients = {name: self.network.gradients[name].copy() for name in of}
        self.network.set_masks(self._given)
        if step is not None:
            assert isinstance(self.sparsity, RigL)
            regrow(self.network, gradients, self.sparsity.decayed(step))

    def behind(self, step: int) -> bool:
        """Prune after a step where that is due, and say whether it was."""
        if not isinstance(self.sparsity, GradualPruning) or not self.sparsity.is_due(step):
            return False
        prune(self.network, self.sparsity.share(step), self.sparsity.scope)
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


def check_kind(sparsity: Any) -> None:
    """Raise BppsaError unless it is a GradualPruning, a RigL or None."""
    if sparsity is not None and not isinstance(sparsity, GradualPruning | RigL):
        raise BppsaError(
            f"training got sparsity={sparsity!r}: it takes bp.GradualPruning(0.97, 1000), bp.RigL(1000) or "
            "None"
        )
