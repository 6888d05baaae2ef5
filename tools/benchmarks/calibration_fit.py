"""From timed work to a cost model: the rates of each class of work, by the least logarithmic errors."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bppsa_cupy.plan.cost_model import CostModel, Rate, work_classes

#: Kinds of work that Python calls one by one; all others are launches that were bound before.
CALLS = ("vjp", "fill", "transpose")

#: Rates tried for multiply-adds, bytes and loops each, at most.
CANDIDATES = 32

#: A class of work has a rate of its own from so many observations on.
LEAST_OBSERVATIONS = 3


@dataclass(frozen=True)
class Observation:
    """Work of one kind that was timed: seconds of one launch, or call; `width` as `work_seconds` takes it."""

    kind: str
    multiply_adds: int
    bytes: int
    seconds: float
    width: int | None = None


def fit_model(
    name: str, observations: Sequence[Observation], seconds_per_launch: float, seconds_per_call: float
) -> CostModel:
    """The model of the device called `name` that fits the observations best, each kind by itself.

    The rate of kinds that were not observed is that of all launches together.
    """
    by_class: dict[str, list[Observation]] = defaultdict(list)
    of_kind: dict[str, list[Observation]] = defaultdict(list)
    for o in observations:
        by_class[work_classes(o.kind, o.bytes)[0]].append(o)
        of_kind[o.kind].append(o)
    enough = {k: found for k, found in by_class.items() if len(found) >= LEAST_OBSERVATIONS}
    rates = {
        k: fit_rate(found, seconds_per_call if found[0].kind in CALLS else seconds_per_launch)
        for k, found in sorted({**of_kind, **enough}.items())
    }
    launches = [o for o in observations if o.kind not in CALLS]
    rate = fit_rate(launches, seconds_per_launch)
    return CostModel(name, rate, seconds_per_launch, seconds_per_call, rates)


def fit_rate(observations: Sequence[Observation], overhead: float) -> Rate:
    """The rate with the least sum of |log(predicted / measured)|, `overhead` seconds added to each.

    The sum of absolute values bears outliers, as a sample in which other work had the processor. Every
    number tried is one that explains an observation by itself.
    """
    work = np.array(
        [(o.multiply_adds, o.bytes, o.multiply_adds / o.width if o.width else 0) for o in observations]
    ).reshape(-1, 3)
    measured = np.array([o.seconds for o in observations])
    # Nothing is learned of work that takes hardly longer than its launch.
    own = np.maximum(measured - overhead, 0.1 * measured)
    best, least = (0.0, 0.0, 0.0), math.inf
    for terms, loops in itertools.product(_candidates(own, work[:, 0]), _candidates(own, work[:, 2])):
        moved = _candidates(own, work[:, 1])[:, np.newaxis]
        predicted = overhead + np.maximum(terms * work[:, 0] + loops * work[:, 2], moved * work[:, 1])
        errors = np.abs(np.log(np.maximum(predicted, 1e-30) / measured)).sum(axis=1)
        position = int(np.argmin(errors))
        if errors[position] < least:
            best, least = (terms, float(moved[position, 0]), loops), float(errors[position])
    return Rate(*(1 / seconds if seconds else math.inf for seconds in best))


def _candidates(seconds: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    """Seconds of one unit: 0, and what single observations took, from the quickest to the slowest."""
    known = np.unique(seconds[amounts > 0] / amounts[amounts > 0])
    if known.size > CANDIDATES:
        known = np.quantile(known, np.linspace(0, 1, CANDIDATES))
    return np.concatenate([[0.0], known])


def errors_by_class(model: CostModel, observations: Iterable[Observation]) -> dict[str, list[float]]:
    """predicted / measured of every observation, by class of work."""
    found: dict[str, list[float]] = defaultdict(list)
    for o in observations:
        overhead = model.seconds_per_call if o.kind in CALLS else model.seconds_per_launch
        predicted = overhead + model.work_seconds(o.kind, o.multiply_adds, o.bytes, o.width)
        found[work_classes(o.kind, o.bytes)[0]].append(predicted / o.seconds)
    return dict(found)
