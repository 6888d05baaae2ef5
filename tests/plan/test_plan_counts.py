"""Multiply-adds of steps and of critical paths, against their definitions in plain Python."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_cases import placements
from plan_cases import general_chains, plan_of, random_chain, small_network
from symbolic_oracle import random_pattern

import bppsa_cupy as bp
from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import Budget, Chain, Element, build_plan, with_input_gradient
from bppsa_cupy.plan.algorithms import blelloch, every_hybrid, from_splits, hybrid, linear
from bppsa_cupy.plan.budget import too_large
from bppsa_cupy.plan.counts import (
    all_counts,
    message_bytes,
    multiply_adds,
    run_schedule,
    shortest,
    step_counts,
    timetable,
    vjp_multiply_adds,
    with_vjps,
)
from bppsa_cupy.plan.product import choose_kind
from bppsa_cupy.plan.sizes import ChainSizes
from bppsa_cupy.plan.sizes.chain_sizes import MOST_VALUES

SEEDS = st.integers(0, 2**32 - 1)


def dense_chain(n, size, shared=False):
    return Chain(tuple(Element("J", Pattern.dense(size, size), shared, None, n - 1 - k) for k in range(n)))


# ---- steps ----


@settings(max_examples=30)
@given(st.integers(1, 12), SEEDS, st.integers(1, 4), st.sampled_from([4, 8]))
def test_a_step_by_its_patterns(n, seed, batch, itemsize):
    chain = random_chain(n, seed, 5)
    sizes, dense = ChainSizes(chain, blelloch(n).out), {}
    for begin in range(1, n + 1):
        dense[begin, begin + 1] = chain.elements[begin - 1].pattern.to_scipy().toarray().astype(int)
        for end in range(begin + 2, n + 2):
            dense[begin, end] = chain.elements[end - 2].pattern.to_scipy().toarray() @ dense[begin, end - 1]
    for step in blelloch(n).steps:
        counts = step_counts(sizes, step, Budget(batch, itemsize))
        right = (dense[step.right] > 0).astype(int)
        shared = {k: all(e.shared for e in chain.elements[k[0] - 1 : k[1] - 1]) for k in dense}
        samples = {k: 1 if shared[k] else batch for k in dense}
        values = right.sum() * samples[step.right]
        if step.kind == "mv":
            terms, indices = right.sum() * batch, right.sum()
            values += (right.shape[0] + right.shape[1]) * batch
            assert (counts.kind, counts.nnz) == ("csr_mv", right.shape[0])
        else:
            left = (dense[step.left] > 0).astype(int)
            out = right @ left
            terms, indices = out.sum() * samples[step.out], right.sum() + left.sum()
            values += left.sum() * samples[step.left] + (out > 0).sum() * samples[step.out]
            assert counts.nnz == (out > 0).sum() and counts.kind == sizes.kind(step)
        assert counts.multiply_adds == terms
        assert counts.bytes == values * itemsize + 4 * indices + sizes.map_bytes(step)


@settings(max_examples=25)
@given(st.integers(0, 12), SEEDS, st.integers(1, 4))
def test_steps_that_are_counted_together_have_equal_counts(n, seed, batch):
    chain, budget = random_chain(n, seed, 4), Budget(batch, 8, 3)
    sizes = ChainSizes(chain, blelloch(n).out)
    for schedule in (linear(n), blelloch(n), hybrid(n, min(1, max(n - 1, 0).bit_length()))):
        expected = [step_counts(sizes, step, budget) for step in schedule.steps]
        assert all_counts(sizes, schedule, budget) == expected
        assert multiply_adds(sizes, schedule, budget).tolist() == [one.multiply_adds for one in expected]


def test_products_and_vectors_of_one_matrix_are_counted_apart():
    """M(1, 3) = M(2, 3)·M(1, 2) and v(4) = M(3, 4)·v(3), all of one pattern."""
    chain = dense_chain(4, 3)
    schedule = from_splits("hybrid", 4, {(0, 2): 1, (0, 3): 1, (1, 3): 2, (0, 4): 3})
    found = {s.step.out: s.multiply_adds for s in all_counts(ChainSizes(chain), schedule, Budget(2, 4))}
    assert found == {(0, 2): 18, (0, 3): 18, (1, 3): 54, (0, 4): 18}


def test_shared_products_do_not_grow_with_the_batch():
    counts = multiply_adds(ChainSizes(dense_chain(4, 3, True)), blelloch(4), Budget(50, 4))
    assert counts.tolist() == [450, 27, 450, 450]


# ---- critical paths ----


@settings(max_examples=80)
@given(st.integers(0, 40), st.integers(1, 6), st.randoms(use_true_random=False))
def test_a_timetable_respects_operands_and_workers(n, workers, random):
    schedule = blelloch(n)
    durations = np.array([random.randint(0, 5) for _ in schedule.steps], float)
    times = timetable(schedule.makers, schedule.out, durations, workers)
    ends = {s.out: t + d for s, t, d in zip(schedule.steps, times.starts, durations, strict=True)}
    by_worker = {}
    rows = zip(schedule.steps, times.starts, durations, times.workers, strict=True)
    for step, start, length, worker in rows:
        assert all(ends.get(operand, 0) <= start for operand in (step.left, step.right))
        assert 0 <= worker < workers
        by_worker.setdefault(worker, []).append((start, start + length))
    for spans in by_worker.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert times.length == max(ends.values(), default=0)
    assert max(times.unbounded, durations.sum() / workers) <= times.length <= durations.sum()


def test_ties_go_by_segments_and_then_by_workers(rng):
    """Ready steps of equal length: first those that end first, then those that begin first."""
    segments = np.array([(begin, end) for end in range(1, 8) for begin in range(end)])
    order = rng.permutation(len(segments))
    none = np.full((len(segments), 2), -1)
    times = timetable(none, segments[order], np.ones(len(segments)), 3)
    np.testing.assert_array_equal(times.starts, order // 3)
    np.testing.assert_array_equal(times.workers, order % 3)
    assert times.length == -(-len(segments) // 3) and times.unbounded == 1


def test_of_the_ready_steps_the_one_with_the_longest_path_after_it_goes_first():
    operands = np.array([[-1, -1], [-1, -1], [-1, -1], [1, -1], [1, 1]])
    segments = np.array([(0, end) for end in range(1, 6)])
    times = timetable(operands, segments, np.array([4, 1, 3, 2, 9]), 1)
    assert times.starts.tolist() == [10, 0, 14, 17, 1]
    assert times.length == 19 and times.unbounded == 10
    with pytest.raises(PlanError):
        timetable(operands, segments, np.ones(5), 0)


@settings(max_examples=40)
@given(placements(), st.integers(1, 5), SEEDS)
def test_ranks_run_their_steps_in_order(placement, batch, seed):
    """Each rank starts a step when it is free and both operands are there."""
    schedule, ranks = placement.schedule, placement.ranks
    sizes = ChainSizes(random_chain(schedule.n, seed))
    budget = Budget(batch, 8, ranks, owners=tuple(placement.owners[1:].tolist()))
    there, free = {}, [0] * ranks
    for counts in all_counts(sizes, placement.schedule, budget):
        step = counts.step
        start = max(there.get(step.left, 0), there.get(step.right, 0), free[step.worker])
        free[step.worker] = there[step.out] = start + counts.multiply_adds
    placed, length = run_schedule(sizes, schedule, budget)
    assert length == max(free) and placed == placement.schedule
    amounts = message_bytes(sizes, placement, batch, 8)
    assert amounts.tolist() == [8 * sizes.values_size(m.segment, batch) for m in placement.messages()]


@pytest.mark.parametrize("workers", [1, 2, 4, 32, 100])
@pytest.mark.parametrize("size", [1, 2, 6])
def test_automatic_levels_have_the_fewest_multiply_adds_on_the_critical_path(size, workers):
    chain, budget = dense_chain(31, size), Budget(2, 4, workers)
    plan = build_plan([chain], {"layers": []}, "f" * 64, workers=workers, batch_size=2, schedules=["hybrid"])
    chosen, sizes = plan.schedule(0, "hybrid"), ChainSizes(chain)
    lengths = [run_schedule(sizes, hybrid(31, levels), budget)[1] for levels in range(5)]
    assert lengths[chosen.levels] == min(lengths) and run_schedule(sizes, chosen, budget)[1] == min(lengths)
    if workers == 1:
        assert chosen.levels == 0
    if size == 1 and workers >= 32:
        assert chosen.levels


def test_a_schedule_is_chosen_among_those_that_fit_the_memory():
    sizes, budget = ChainSizes(dense_chain(31, 1)), Budget(2, 4, 32)
    free = shortest(sizes, every_hybrid(31), budget)
    needed = budget.bytes(sizes, free)
    assert shortest(sizes, every_hybrid(31), replace(budget, memory=needed)) == free
    assert budget.bytes(sizes, shortest(sizes, every_hybrid(31), replace(budget, memory=needed - 1))) < needed
    assert shortest(sizes, every_hybrid(31), replace(budget, memory=1)).levels == 0


def test_critical_paths_of_a_plan():
    plan = plan_of(small_network())
    paths = plan.critical_paths(4)
    assert list(paths) == ["bp", "linear", "blelloch", "hybrid"]
    chain = plan.chains[0]
    assert paths["bp"] == 4 * sum(element.pattern.nnz for element in chain.chain.elements[:-1])
    assert paths["linear"] == multiply_adds(chain.sizes, linear(6), Budget(4, 4)).sum()
    assert list(plan.critical_paths(5)) == ["bp"]


# ---- VJPs ----


def test_a_vjp_counts_as_it_runs(tmp_path):
    mask = np.zeros((8, 4, 3, 3), bool)
    mask[0, 0, 0, 0] = True
    layers = [
        bp.Conv2d(2, 4, 3, padding=1),
        bp.Conv2d(4, 8, 3, padding=1, mask=mask),
        bp.ReLU(),
        bp.Flatten(),
    ]
    layers += [bp.Linear(8 * 6 * 6, 5)]
    net = bp.Sequential(layers, input_shape=(2, 6, 6), device="host")
    (chain,) = net.chains()
    # The Jacobian of the masked layer has 5 x 5 entries; its VJP goes by the list of its one weight.
    assert [e.pattern.nnz for e in chain.elements[:3]] == [288 * 5, 288, 25]
    assert [e.vjp_terms for e in chain.elements[:3]] == [288 * 5, 288, 36 * 3]
    assert vjp_multiply_adds(chain, Budget(3, 4)) == 3 * (288 * 5 + 288 + 36 * 3)
    dense = layers[1].with_masks({"weight": np.random.default_rng(0).random(mask.shape) < 0.7})
    assert dense.vjp_multiply_adds((4, 6, 6)) == 36 * 4 * 8 * 9
    net.plan(batch_size=1, schedules=["linear"]).save(tmp_path / "p.h5")
    assert bp.Plan.load(tmp_path / "p.h5").chains[0].chain == chain
    assert 3 not in with_vjps(chain, linear(4)).vjps and {1, 2} <= set(with_vjps(chain, linear(4)).vjps)


# ---- bounds ----


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


def test_vectors_among_the_segments_are_not_counted():
    sizes = ChainSizes(random_chain(4), [(0, 1), (0, 3)])
    assert not sizes.counting._counted
    sizes = ChainSizes(random_chain(4), [(0, 3), (1, 3)])
    assert len(sizes.counting._counted) == 1


def test_a_schedule_whose_inputs_alone_pass_the_memory_is_told_so():
    chain = random_chain(5)
    told = too_large("linear", [ChainSizes(chain)], [blelloch(5)], Budget(4, 8, 1, memory=1))
    assert "its inputs pass" in told
