"""From timed launches of passes over time to a GPU's model, by the least logarithmic errors."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bppsa_cupy.processors.models import GpuModel
from bppsa_cupy.tools.benchmarks.calibration_walks import KernelCase

#: A launch, and its seconds.
Timed = tuple[KernelCase, float]


class Sample(NamedTuple):
    """A launch: seconds measured, seconds counted for its warps, and the bytes that a single step reads."""

    measured: float
    counted: float
    read: float


def fit_walks(model: GpuModel, timed: Iterable[Timed]) -> GpuModel:
    """`model` with the factors of its counts, and the rates of cache and memory, that explain times best.

    `launch` and `following` are taken as they are. Times that are no numbers are left out. Where no launch
    says what a number is, it stays: a factor is 1 then, and a rate what it was, or the quickest seen.
    Laws: every number is above 0; times that a model of this form predicts give its predictions back.
    """
    model = replace(model, factors={})
    factors: dict[str, float] = {}
    cached: list[Sample] = []
    beyond: list[Sample] = []
    for name, found in _by_class(model, timed).items():
        if name == "step":
            for case, seconds in found:
                (cached if model.is_cached(case.size) else beyond).append(_sample(model, case, seconds))
            continue
        samples = [_sample(model, case, seconds) for case, seconds in found]
        factors[name] = _nearest(samples, model.launch, _factors(samples, model.launch))[0]
    if cached:
        known = _factors(cached, model.following)
        factors["step"], cache = _nearest(cached, model.following, known, model.cache)
        model = replace(model, cache=cache)
    if beyond:
        known = [factors["step"]] if cached else _factors(beyond, model.following)
        factors["step"], memory = _nearest(beyond, model.following, known, model.memory)
        model = replace(model, memory=memory)
    return replace(model, factors=factors)


def predicted(model: GpuModel, case: KernelCase) -> float:
    """Seconds of a case as it is timed."""
    if case.is_step:
        return model.single_step_seconds(case.size, case.way)
    return model.launch + case.counted_in(model)


def walk_errors(model: GpuModel, timed: Iterable[Timed]) -> dict[str, list[float]]:
    """predicted / measured of every launch, by the class of its factor."""
    return {
        name: [predicted(model, case) / seconds for case, seconds in found]
        for name, found in _by_class(model, timed).items()
    }


def _by_class(model: GpuModel, timed: Iterable[Timed]) -> dict[str, list[Timed]]:
    found: dict[str, list[Timed]] = defaultdict(list)
    for case, seconds in timed:
        if 0 < seconds < math.inf:
            found[case.class_in(model)].append((case, seconds))
    return dict(sorted(found.items()))


def _sample(model: GpuModel, case: KernelCase, seconds: float) -> Sample:
    return Sample(seconds, case.counted_in(model), case.read)


def _own(samples: Sequence[Sample], overhead: float) -> np.ndarray:
    """Seconds without those of every launch. Nothing is learned of work that takes hardly longer than its
    launch."""
    measured = np.array([sample.measured for sample in samples])
    return np.maximum(measured - overhead, 0.1 * measured)


def _factors(samples: Sequence[Sample], overhead: float) -> list[float]:
    """Factors that are tried: 1, and of each launch the one that explains it by itself."""
    counted = np.array([sample.counted for sample in samples])
    return [1.0, *(_own(samples, overhead)[counted > 0] / counted[counted > 0])]


def _nearest(
    samples: Sequence[Sample], overhead: float, factors: Iterable[float], rate: float = math.inf
) -> tuple[float, float]:
    """The factor, of those given, and the bytes a second with the least sum of |log(predicted / measured)|.

    Each rate that is tried explains a launch by itself. Where no launch is the slower for its reads, it is
    `rate`, or the quickest that was seen. The sum of absolute values bears outliers.
    """
    measured, counted, read = np.array(samples).T
    own = _own(samples, overhead)
    seen = read[read > 0] / own[read > 0]
    best, least = (1.0, math.inf), math.inf
    for factor, tried in itertools.product(factors, (math.inf, *seen)):
        guess = overhead + np.maximum(factor * counted, read / tried)
        error = float(np.abs(np.log(np.maximum(guess, 1e-30) / measured)).sum())
        if error < least:
            best, least = (float(factor), float(tried)), error
    factor, found = best
    return factor, found if found < math.inf else max(rate, *seen, 0.0)
