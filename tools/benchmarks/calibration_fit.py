"""From timed work to a cost model: two rates for each kind, by the least sum of logarithmic errors."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bppsa_cupy.plan.cost_model import CostModel, Rate

#: Kinds of work that Python calls one by one; all others are launches that were bound before.
CALLS = ("vjp", "fill", "transpose")

#: Rates tried for multiply-adds and for bytes each, at most.
CANDIDATES = 60


@dataclass(frozen=True)
class Observation:
    """Work of one kind that was timed: seconds of one launch, or call."""

    kind: str
    multiply_adds: int
    bytes: int
    seconds: float


def fit_model(
    name: str, observations: Sequence[Observation], seconds_per_launch: float, seconds_per_call: float
) -> CostModel:
    """The model of the device called `name` that fits the observations best, each kind by itself.

    The rate of kinds that were not observed is that of all launches together.
    """
    by_kind: dict[str, list[Observation]] = defaultdict(list)
    for observation in observations:
        by_kind[observation.kind].append(observation)
    launches = [o for o in observations if o.kind not in CALLS]
    rates = {
        kind: fit_rate(found, seconds_per_call if kind in CALLS else seconds_per_launch)
        for kind, found in sorted(by_kind.items())
    }
    rate = fit_rate(launches, seconds_per_launch)
    return CostModel(name, rate, seconds_per_launch, seconds_per_call, rates)


def fit_rate(observations: Sequence[Observation], overhead: float) -> Rate:
    """The rate with the least sum of |log(predicted / measured)|, `overhead` seconds added to each.

    The sum of absolute values bears outliers, as a sample in which other work had the processor. Every
    rate tried is one that explains an observation.
    """
    work = np.array([(o.multiply_adds, o.bytes) for o in observations], np.float64).reshape(-1, 2)
    measured = np.array([o.seconds for o in observations])
    # Of work that takes hardly longer than its launch nothing is learned.
    own = np.maximum(measured - overhead, 0.1 * measured)
    by_terms = _candidates(own, work[:, 0])
    by_bytes = _candidates(own, work[:, 1])
    pairs = np.array([(a, b) for a in by_terms for b in by_bytes if a or b]).reshape(-1, 2)
    if not len(pairs):
        return Rate(math.inf, math.inf)
    predicted = overhead + np.maximum(pairs[:, :1] * work[:, 0], pairs[:, 1:] * work[:, 1])
    errors = np.abs(np.log(predicted / measured)).sum(axis=1)
    terms, moved = pairs[int(np.argmin(errors))]
    return Rate(1 / terms if terms else math.inf, 1 / moved if moved else math.inf)


def _candidates(seconds: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    """Seconds of one unit: 0, and what single observations took, from the quickest to the slowest."""
    known = np.unique(seconds[amounts > 0] / amounts[amounts > 0])
    if known.size > CANDIDATES:
        known = np.quantile(known, np.linspace(0, 1, CANDIDATES))
    return np.concatenate([[0.0], known])


def errors_by_kind(model: CostModel, observations: Iterable[Observation]) -> dict[str, list[float]]:
    """predicted / measured of every observation, by kind."""
    found: dict[str, list[float]] = defaultdict(list)
    for o in observations:
        overhead = model.seconds_per_call if o.kind in CALLS else model.seconds_per_launch
        predicted = overhead + model.work_seconds(o.kind, o.multiply_adds, o.bytes)
        found[o.kind].append(predicted / o.seconds)
    return dict(found)
