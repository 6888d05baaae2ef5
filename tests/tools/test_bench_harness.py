"""The harness of the benchmarks: samples, medians, checked results, processes of their own."""

from __future__ import annotations

import os

import numpy as np
import pytest
from bench_workloads import Breaking, Pooled, Refused, Scripted

from bppsa_cupy.tools.benchmarks.harness import (
    LEAST_SAMPLES,
    BenchmarkError,
    Measurement,
    Row,
    Side,
    measure,
    memory_row,
    require_equal,
    timed_row,
)
from bppsa_cupy.tools.benchmarks.rivals import best
from bppsa_cupy.tools.benchmarks.workload import OVERALL, Timer, thread_variables

pytestmark = pytest.mark.long


def test_a_stateless_sample_is_the_mean_of_enough_runs() -> None:
    workload = Scripted([5.0, 5.0, 5.0, 0.25])
    timer = Timer(workload, sample_seconds=2.0)
    assert timer.number == 8
    before = workload.runs
    assert timer.sample() == {OVERALL: pytest.approx(0.25)}
    assert workload.runs == before + 1 + 8


def test_a_stateful_sample_resets_before_each_run_and_times_the_laps() -> None:
    workload = Scripted([1.0], stateful=True)
    timer = Timer(workload, sample_seconds=3.0)
    assert timer.number == 3
    sample = timer.sample()
    assert sample == {
        OVERALL: pytest.approx(1.0),
        "first": pytest.approx(0.1),
        "second": pytest.approx(0.9),
    }
    assert workload.resets == workload.runs


def test_rows_hold_medians_quartiles_and_the_rival_over_us() -> None:
    row = timed_row("case", "step", [1.0, 2.0, 3.0, 4.0, 100.0], [6.0, 6.0, 6.0, 8.0, 50.0], "rival")
    assert (row.ours, row.theirs, row.ratio, row.unit) == (3.0, 6.0, 2.0, "s")
    assert row.spread == {"ours": [2.0, 4.0], "theirs": [6.0, 8.0], "ratio": [2.0, 3.0]}
    alone = timed_row("case", "step", [1.0, 3.0])
    assert (alone.ours, alone.theirs, alone.against, alone.ratio) == (2.0, None, None, None)


def test_json_of_a_row_has_the_fixed_fields_and_what_else_is_set() -> None:
    fixed = {"case", "quantity", "ours", "theirs", "against", "unit", "ratio", "spread"}
    assert Row("case", "nnz", 3).to_json().keys() == fixed
    assert Row("case", "nnz", 3, paper=2.0, note="counted").to_json().keys() == {*fixed, "paper", "note"}


def test_memory_rows_are_in_mebibytes() -> None:
    ours, theirs = Measurement(peak=2**20), Measurement(peak=3 * 2**20)
    row = memory_row("case", "host", ours, ("rival", theirs))
    assert (row.ours, row.theirs, row.ratio, row.unit) == (1.0, 3.0, 3.0, "MiB")
    assert memory_row("case", "host", ours, None).theirs is None
    assert memory_row("case", "cuda", Measurement(), ("rival", theirs)).ratio is None


def test_the_best_rival_is_the_one_with_the_smallest_median() -> None:
    slow, quick = Measurement({OVERALL: [3.0, 1.0, 3.0]}), Measurement({OVERALL: [2.0, 2.0, 9.0]})
    assert best({"slow": slow, "quick": quick}) == ("quick", quick)
    assert best({}) is None


@pytest.mark.parametrize(
    ("theirs", "complaint"),
    [
        ({"a": np.ones(2), "b": np.ones(1)}, r"gives \['a'\], theirs \['a', 'b'\]"),
        ({"a": np.ones(3)}, r"shape \(2,\) on our side, \(3,\)"),
        ({"a": np.array([1.0, 1.1])}, "differs by 0.1 in norm"),
        ({"a": np.array([1.0, np.nan])}, "times are not reported"),
    ],
)
def test_results_that_differ_are_refused(theirs: dict[str, np.ndarray], complaint: str) -> None:
    require_equal("case", {"a": np.ones(2)}, {"a": np.array([1.0, 1.0 + 1e-9])}, 1e-6)
    with pytest.raises(BenchmarkError, match=complaint):
        require_equal("case", {"a": np.ones(2)}, theirs, 1e-6)


def test_sides_run_in_processes_of_their_own_with_their_threads() -> None:
    before = dict(os.environ)
    sides = {
        "small": Side(Pooled, {}, threads=1),
        "large": Side(Pooled, {"offset": 1.0, "megabytes": 64}, threads=2),
    }
    measured = measure(sides, repeats=3, sample_seconds=0.0)
    small, large = measured["small"].result, measured["large"].result
    assert small["process"] != large["process"] != os.getpid()
    assert (small["threads"], large["threads"]) == (1, 2)
    np.testing.assert_array_equal(large["values"], small["values"] + 1)
    assert [len(m.seconds[OVERALL]) for m in measured.values()] == [3, 3]
    assert measured["large"].peak - measured["small"].peak > 40 * 2**20
    assert dict(os.environ) == before
    assert set(thread_variables(2).values()) == {"2"}


def test_a_limit_ends_the_samples_and_results_are_checked_before_and_after_them() -> None:
    seen = []
    measured = measure({"slow": Side(Pooled, {}, 1)}, 50, 0.0, limit_seconds=1e-9, check=seen.append)
    assert len(measured["slow"].seconds[OVERALL]) == LEAST_SAMPLES
    assert [set(results) for results in seen] == [{"slow"}, {"slow"}]

    def refuse(results: object) -> None:
        raise BenchmarkError("they differ")

    with pytest.raises(BenchmarkError, match="they differ"):
        measure({"quick": Side(Pooled, {}, 1)}, 1, 0.0, check=refuse)


@pytest.mark.parametrize(
    ("side", "complaint"),
    [
        (Side(Refused, {}, 1), "^bad: a plan of 9 bytes"),
        (Side(Breaking, {}, 1), "(?s)^bad: Traceback.*the run broke"),
        (Side(Breaking, {"exit_code": 7}, 1), "^bad: the process ended with exit code 7"),
        (Side(Pooled, {}, 1, imports=("no_such_module",)), "^bad: No module named 'no_such_module'"),
    ],
)
def test_a_side_that_fails_is_named(side: Side, complaint: str) -> None:
    with pytest.raises(BenchmarkError, match=complaint):
        measure({"bad": side}, repeats=1)
