"""What a plan does exactly at its bounds: ties between steps, the largest batch, the shortest term list."""

import math

import numpy as np
import pytest
from plan_cases import general_chains, plan_of, random_chain
from symbolic_oracle import random_pattern

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import Budget, with_input_gradient
from bppsa_cupy.plan.algorithms import blelloch
from bppsa_cupy.plan.budget import too_large
from bppsa_cupy.plan.cost.list_scheduler import timetable
from bppsa_cupy.plan.cost.schedules import preparation_seconds
from bppsa_cupy.plan.cost_model import CostModel, Rate
from bppsa_cupy.plan.product import choose_kind
from bppsa_cupy.plan.sizes import ChainSizes
from bppsa_cupy.plan.sizes.chain_sizes import MOST_VALUES


def test_ties_go_by_segments_and_then_by_workers(rng):
    """Steps that all are ready and take as long: those that end first, then those that begin first."""
    segments = np.array([(begin, end) for end in range(1, 8) for begin in range(end)])
    order = rng.permutation(len(segments))
    none = np.full((len(segments), 2), -1)
    times = timetable(none, segments[order], np.ones(len(segments)), 3)
    place = order  # `segments` are in the order of the ties
    np.testing.assert_array_equal(times.starts, place // 3)
    np.testing.assert_array_equal(times.workers, place % 3)
    assert times.seconds == -(-len(segments) // 3) and times.critical_path == 1


def test_of_the_ready_steps_the_one_with_the_longest_path_behind_it_goes_first():
    """Three that are ready, and two that wait for the second."""
    operands = np.array([[-1, -1], [-1, -1], [-1, -1], [1, -1], [1, 1]])
    segments = np.array([(0, end) for end in range(1, 6)])
    times = timetable(operands, segments, np.array([4.0, 1.0, 3.0, 2.0, 9.0]), 1)
    assert times.starts.tolist() == [10.0, 0.0, 14.0, 17.0, 1.0]
    assert times.seconds == 19 and times.critical_path == 10


def test_integers_of_a_schedule_are_counted_once_at_the_first_level_that_needs_them():
    """Patterns of all matrices, and maps of all products."""
    for chain in (*general_chains(), random_chain(9, 4)):
        planned = plan_of(chain).chains[0]
        schedule = with_input_gradient(blelloch(len(chain)))
        by_level, known = [0] * schedule.depth, set()
        for step in sorted(schedule.steps, key=lambda step: step.level):
            for segment in (step.left, step.right, step.out):
                if segment[0] and planned.pattern(*segment).digest not in known:
                    pattern = planned.pattern(*segment)
                    known.add(pattern.digest)
                    by_level[step.level] += pattern.indptr.nbytes + pattern.indices.nbytes
            if step.kind == "mm":
                product = planned.product(step)
                pair = product.a.digest, product.b.digest
                by_level[step.level] += product.map_bytes * (pair not in known)
                known.add(pair)
        expected = np.cumsum(by_level).tolist()
        assert planned.sizes.index_bytes(schedule) == expected
        assert ChainSizes(chain).index_bytes(schedule) == expected
    first = plan_of(general_chains()[0]).chains[0]
    assert any(first.product(step).map_bytes for step in blelloch(4).steps if step.kind == "mm")


class Many(ChainSizes):
    """Matrices of 2⁴⁰ entries."""

    def nnz(self, segment):
        return 2**40


def test_a_batch_is_as_large_as_the_most_values_allow():
    chain = next(
        chain for chain in map(lambda seed: random_chain(3, seed), range(99)) if not chain.shared(1, 2)
    )
    sizes, most = Many(chain), MOST_VALUES // 2**40
    assert sizes.values_sizes(np.array([[1, 2]]), most).tolist() == [MOST_VALUES]
    with pytest.raises(PlanError, match=f"so it takes at most {most}"):
        sizes.values_sizes(np.array([[1, 2]]), most + 1)


def test_a_term_list_is_taken_to_a_term_an_entry_of_the_first_factor(rng):
    a, b = random_pattern(rng, 9, 8, 0.5), random_pattern(rng, 8, 7, 0.5)
    assert choose_kind(a, b, a.nnz) == "terms" and choose_kind(a, b, a.nnz + 1) == "row_wise"


def test_work_takes_the_rate_of_its_class_and_its_loops_are_counted():
    """Multiply-adds and loops one after the other; beyond 2²⁴ bytes by a rate of their own."""
    rates = {"terms": Rate(2.0, math.inf, 8.0), "terms large": Rate(1.0, math.inf)}
    model = CostModel("given", Rate(4.0, math.inf), 0.0, 0.0, rates)
    assert model.work_seconds("terms", 16, 2**24) == 8
    assert model.work_seconds("terms", 16, 2**24, width=4) == 8 + 4 / 8
    assert model.work_seconds("terms", 16, 2**24 + 1, width=4) == 16
    assert model.work_seconds("dense", 16, 2**24 + 1) == 4


def test_vectors_among_the_segments_are_not_counted():
    sizes = ChainSizes(random_chain(4), [(0, 1), (0, 3)])
    assert not sizes.counting._counted
    sizes = ChainSizes(random_chain(4), [(0, 3), (1, 3)])
    assert len(sizes.counting._counted) == 1


@pytest.mark.parametrize("seed", range(5))
def test_what_surrounds_a_scan_is_the_sum_over_its_elements(seed):
    """Values of all but a_n; vectors of the first element and of those with shared values."""
    chain, expected = random_chain(7, seed), 0.0
    rates = {"fill": Rate(3.0, 7.0), "transpose": Rate(1.0, 5.0)}
    budget = Budget(4, 8, 1, CostModel("given", Rate(1.0, 1.0), 0.0, 0.5, rates))
    for k, element in enumerate(chain.elements, 1):
        values = element.pattern.nnz * (1 if element.shared else 4)
        if k < 7:
            expected += 0.5 + max(values / 3, (8 * values + 4 * element.pattern.nnz) / 7)
        if k == 1 or element.shared:
            expected += 0.5 + 2 * element.pattern.shape[1] * 4 * 8 / 5
    assert preparation_seconds(chain, budget) == pytest.approx(expected)


def test_a_schedule_whose_inputs_alone_pass_the_memory_is_told_so():
    chain = random_chain(5)
    told = too_large("linear", [ChainSizes(chain)], [blelloch(5)], Budget(4, 8, 1, memory=1))
    assert "its inputs pass" in told
