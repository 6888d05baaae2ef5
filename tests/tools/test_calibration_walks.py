"""The calibration of a GPU's passes over time: what is launched, and what is fitted to its times."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from timed_gpu import TimedGpu

from bppsa_cupy.processors.calibration import CLASSES, fields_from_json
from bppsa_cupy.processors.models import H200, GpuModel, built_in
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.timescan import WalkSize
from bppsa_cupy.tools.benchmarks.calibration_walks import (
    KernelCase,
    cases,
    time_cases,
    time_overheads,
    variants_of,
)
from bppsa_cupy.tools.benchmarks.calibration_walks_fit import Timed, fit_walks, predicted, walk_errors
from bppsa_cupy.tools.on_gpu import times

#: A GPU that is none of ours: every class of launches is off by a factor of its own.
TRUTH = replace(
    H200, launch=7e-6, check=9e-6, following=2e-6, cache=3e12, memory=2e12,
    factors={
        "forward": 1.3, "forward busy": 1.1, "forward in memory": 0.8, "forward in memory busy": 1.7,
        "backward": 2.0, "backward busy": 1.2, "backward in memory": 0.7, "backward in memory busy": 0.9,
        "forward by blocks": 0.9, "forward by blocks busy": 1.4, "backward by blocks": 1.8,
        "backward by blocks busy": 0.5,
        "reduce": 1.5, "reduce busy": 1.6, "reduce in blocks busy": 2.5, "step": 1.4, "scan": 0.6,
    },
)  # fmt: skip
#: What a fit starts with: the counts, and the overheads, which are measured on their own.
COUNTED = replace(H200, launch=TRUTH.launch, check=TRUTH.check, following=TRUTH.following)


def exact(truth: GpuModel = TRUTH) -> list[Timed]:
    """Times of the launches of a calibration, as a model predicts them."""
    return [(case, predicted(truth, case)) for case in cases(quick=False)]


def noisy(spread: float) -> list[Timed]:
    """The same with noise of a standard deviation, of the logarithm, and every eleventh 8 times as long."""
    rng = np.random.default_rng(0)
    return [
        (case, seconds * math.exp(spread * rng.standard_normal()) * (8 if number % 11 == 0 else 1))
        for number, (case, seconds) in enumerate(exact())
    ]


@pytest.mark.parametrize("factor", [0, -1.0, math.inf, math.nan])
def test_a_factor_that_is_none_is_refused(factor: float) -> None:
    assert fields_from_json("cuda", TRUTH.measured)["factors"] == TRUTH.factors
    with pytest.raises(ValueError, match="is no factor"):
        fields_from_json("cuda", {**TRUTH.measured, "factors": {"step": factor}})


@pytest.mark.parametrize("shared, cache", [(100_000, 4 << 20), (None, None)])
def test_estimates_take_a_devices_own_limits(shared: int | None, cache: int | None) -> None:
    gpu = SimpleNamespace(name="cuda", workers=7, shared_bytes=shared, cache_bytes=cache, cluster_blocks=8)
    model = built_in(gpu)
    assert isinstance(model, GpuModel) and (model.workers, model.cluster_blocks) == (7, 8)
    assert model.shared_bytes == (shared or H200.shared_bytes)
    assert model.cache_bytes == (3_355_443 if cache else H200.cache_bytes)


# ---- the fit ----


def test_exact_times_give_every_number_back() -> None:
    found = fit_walks(COUNTED, exact())
    assert found.factors == pytest.approx(TRUTH.factors)
    assert (found.cache, found.memory) == pytest.approx((TRUTH.cache, TRUTH.memory))
    assert all(
        ratios == pytest.approx([1.0] * len(ratios)) for ratios in walk_errors(found, exact()).values()
    )


@pytest.mark.parametrize("cache_bytes", [3 << 20, 90 << 20])
def test_with_another_l2_too(cache_bytes: int) -> None:
    """Steps of both sides of it are timed: each rate is found."""
    truth = replace(TRUTH, cache=1.3e12, memory=3e11, cache_bytes=cache_bytes)
    found = fit_walks(replace(COUNTED, cache_bytes=cache_bytes), exact(truth))
    assert (found.cache, found.memory) == pytest.approx((truth.cache, truth.memory))


def test_every_class_that_is_measured_is_met_by_more_than_one_launch() -> None:
    errors = walk_errors(COUNTED, exact())
    assert errors.keys() == TRUTH.factors.keys() and min(map(len, errors.values())) > 1
    # Widths beyond registers fill a GPU however short a reduction is, and steps have one class.
    assert set(CLASSES) - errors.keys() == {"reduce in blocks", "step busy", "scan busy"}


def test_noise_and_outliers_move_no_number_much() -> None:
    found = fit_walks(COUNTED, noisy(0.05))
    for name, factor in TRUTH.factors.items():
        assert found.factors[name] == pytest.approx(factor, rel=0.12), name
    assert (found.cache, found.memory) == pytest.approx((TRUTH.cache, TRUTH.memory), rel=0.12)
    assert all(abs(np.log(np.median(ratios))) < 0.1 for ratios in walk_errors(found, noisy(0.05)).values())


def test_without_times_the_counts_stay() -> None:
    assert fit_walks(TRUTH, []) == replace(TRUTH, factors={})
    nothing = [(case, seconds) for case in cases(False) for seconds in (0.0, -1.0, math.nan, math.inf)]
    assert fit_walks(H200, nothing) == H200


def test_no_number_is_negative_where_launches_take_no_longer_than_nothing() -> None:
    found = fit_walks(COUNTED, [(case, 0.5 * TRUTH.following) for case in cases(False)])
    assert min(found.factors.values()) > 0 and min(found.cache, found.memory) >= H200.memory
    size = WalkSize(FORMS["gru"], 1000, 16, 20, 4)
    assert 0 < found.walk_seconds(size, "backward", 1) < math.inf


def test_reads_that_are_never_waited_for_leave_a_rate_that_none_was_above() -> None:
    quick = replace(TRUTH, cache=1e15)
    timed = [(case, predicted(quick, case)) for case in cases(False) if case.is_step]
    found = fit_walks(COUNTED, timed)
    assert found.cache >= H200.cache and found.factors["step"] == pytest.approx(TRUTH.factors["step"])
    assert max(walk_errors(found, timed)["step"]) == pytest.approx(1.0)
    beyond = [(case, seconds) for case, seconds in timed if not quick.is_cached(case.size)]
    assert fit_walks(COUNTED, beyond).memory == pytest.approx(TRUTH.memory)


def test_a_class_without_times_takes_the_factor_of_its_kind() -> None:
    timed = [one for one in exact() if one[0].class_in(H200) in ("backward", "reduce in blocks busy")]
    found = fit_walks(COUNTED, timed)
    assert [found.factor(f"backward{load}") for load in ("", " busy")] == pytest.approx([2.0, 2.0])
    assert [found.factor(f"reduce in blocks{load}") for load in ("", " busy")] == pytest.approx([2.5, 2.5])
    assert found.factor("forward") == 1.0


# ---- what is launched ----


def test_what_is_timed_is_what_is_counted() -> None:
    """A GPU whose clock goes by the arguments of its launches: a fit to its times is of its numbers."""
    gpu = TimedGpu(TRUTH)
    model = replace(built_in(gpu), **time_overheads(gpu))
    assert isinstance(model, GpuModel)
    assert (model.launch, model.following) == pytest.approx((TRUTH.launch, TRUTH.following))
    assert 0 < model.check < 1
    found = fit_walks(model, time_cases(gpu, cases(False), processes=0))
    assert found.factors == pytest.approx(TRUTH.factors)
    assert (found.cache, found.memory) == pytest.approx((TRUTH.cache, TRUTH.memory))


def test_what_does_not_fit_is_told_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    size = WalkSize(FORMS["gru"], 20, 1, 4000, 4)
    chosen = [KernelCase("backward", size, 20), KernelCase("forward_step", size)]
    gpu = TimedGpu(TRUTH)
    gpu.shared = 4096
    assert [case for case, _ in time_cases(gpu, chosen, processes=0)] == chosen[1:]
    said = capsys.readouterr().err
    assert (
        said.startswith("gru_backward T=20 B=1 H=4000") and "bytes of shared memory, 4096 are there" in said
    )


def test_what_make_gpu_calibrates_it_has_compiled_before() -> None:
    """`times` compiles the same variants beside each other; a calibration behind it compiles none."""
    gpu, arguments = TimedGpu(TRUTH), times.parser().parse_args([])
    compiled = set(times.variants_of(gpu, list(times.over_time().values()), arguments))
    assert set(variants_of(gpu, cases(False))) <= compiled
