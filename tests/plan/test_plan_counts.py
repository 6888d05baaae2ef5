"""Sizes and multiply-adds before multiplying, and critical paths, against SciPy and their definitions."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_cases import placements
from plan_cases import convolution, pooling, random_chain, small_network

import bppsa_cupy as bp
from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan import Budget, Chain, Element, build_plan, with_input_gradient
from bppsa_cupy.plan import sizes as plan_sizes
from bppsa_cupy.plan.plan import assign_workers, critical_path, multiply_adds, shortest, with_vjps
from bppsa_cupy.plan.product import multiply
from bppsa_cupy.plan.schedule import Step, blelloch, every_hybrid, hybrid, linear, up_sweep_levels
from bppsa_cupy.plan.sizes import ChainSizes
from bppsa_cupy.tools.plans.report import all_counts

SEEDS = st.integers(0, 2**32 - 1)


def chain_of(*patterns, shared=True):
    return Chain(tuple(Element(f"{k}", pattern, shared) for k, pattern in enumerate(patterns)))


def dense_chain(n, size, shared=False):
    return chain_of(*[Pattern.dense(size, size)] * n, shared=shared)


# ---- sizes ----

CHAINS = {
    "network": small_network(),
    "unpruned": chain_of(
        Pattern.dense(8, 3),
        pooling(2, 4),
        Pattern.diagonal(32),
        convolution(3, 6, 2, 3),
        Pattern.diagonal(108),
        convolution(2, 8, 3, 3),
    ),
    "random": random_chain(7, 3),
    "wide": random_chain(9, 5, 90),
    "wider": random_chain(5, 1, 300),
    "diagonals": chain_of(*[Pattern.diagonal(4)] * 3),
    "empty rows": chain_of(
        Pattern((3, 0), [0] * 4, []), Pattern((0, 3), [0], []), Pattern((2, 0), [0] * 3, [])
    ),
}


def assert_all_counted(chain):
    """Every segment is counted as SciPy's product of its patterns, and every product by its structure."""
    n = len(chain)
    patterns = {(k, k + 1): element.pattern for k, element in enumerate(chain.elements, 1)}
    segments = [(begin, end) for begin in range(1, n + 1) for end in range(begin + 1, n + 2)]
    sizes = ChainSizes(chain, segments)
    for begin, end in segments:
        if end > begin + 1:
            product = patterns[end - 1, end].to_scipy() @ patterns[begin, end - 1].to_scipy()
            patterns[begin, end] = Pattern.from_scipy(product)
            step = Step(0, begin, end - 1, end, "mm")
            made = multiply(patterns[step.right], patterns[step.left])
            assert sizes.multiply_adds(step) == made.multiply_adds
            # A product that is a diagonal by chance is known as one only when it is made.
            assert sizes.product(step).kind == made.kind or made.a.is_diagonal or made.b.is_diagonal
        pattern, counted = patterns[begin, end], sizes.pattern((begin, end))
        assert counted.shape == pattern.shape and counted.nnz == pattern.nnz == sizes.nnz((begin, end))
        np.testing.assert_array_equal(counted.row_lengths, pattern.row_lengths)
        columns = np.bincount(pattern.indices, minlength=pattern.shape[1])
        np.testing.assert_array_equal(counted.column_counts, columns)
    return sizes


@pytest.mark.parametrize("block", [8, 200, 2**27])
@pytest.mark.parametrize("name", CHAINS)
def test_all_segments_in_blocks_of_any_width(name, block, monkeypatch):
    monkeypatch.setattr(plan_sizes, "BLOCK_BYTES", block)
    assert_all_counted(CHAINS[name])


# ---- multiply-adds ----


@settings(max_examples=30)
@given(st.integers(0, 12), SEEDS, st.integers(1, 4), st.data())
def test_steps_by_their_patterns(n, seed, batch, data):
    chain = random_chain(n, seed, 5)
    sizes, schedule = ChainSizes(chain), hybrid(n, data.draw(st.integers(0, up_sweep_levels(n))))
    counts = all_counts(sizes, schedule, batch)
    matrices = [element.pattern.to_scipy().toarray().astype(np.int64) for element in chain.elements]
    for step, kind, nnz, terms in counts:
        left, right = np.eye(chain.length(step.begin or 1), dtype=np.int64), None
        for k in range(step.begin, step.end):
            if k >= step.split:
                right = matrices[k - 1] if right is None else (matrices[k - 1] @ right > 0).astype(np.int64)
            elif step.begin:
                left = (matrices[k - 1] @ left > 0).astype(np.int64)
        if step.kind == "mv":
            assert (kind, nnz, terms) == ("csr_mv", right.shape[0], right.sum() * batch)
        else:
            shared = all(element.shared for element in chain.elements[step.begin - 1 : step.end - 1])
            assert terms == (right @ left).sum() * (1 if shared else batch)
            assert (kind, nnz) == (sizes.product(step).kind, (right @ left > 0).sum())


def test_a_vjp_counts_as_it_runs(tmp_path):
    mask = np.zeros((8, 4, 3, 3), bool)
    mask[0, 0, 0, 0] = True
    convolutions = [bp.Conv2d(2, 4, 3, padding=1), bp.Conv2d(4, 8, 3, padding=1, mask=mask)]
    layers = [*convolutions, bp.ReLU(), bp.Flatten(), bp.Linear(8 * 6 * 6, 5)]
    net = bp.Sequential(layers, input_shape=(2, 6, 6), device="host")
    (chain,) = net.architecture.chains()
    # The Jacobian of the masked layer has 5 x 5 entries; its VJP goes by the list of its one weight.
    assert [e.pattern.nnz for e in chain.elements[:3]] == [288 * 5, 288, 25]
    assert [e.vjp_terms for e in chain.elements[:3]] == [288 * 5, 288, 36 * 3]
    net.plan(batch_size=1, schedules=["linear"]).save(tmp_path / "p.h5")
    assert bp.Plan.load(tmp_path / "p.h5").chains[0].chain == chain
    assert 3 not in with_vjps(chain, linear(4)).vjps and {1, 2} <= set(with_vjps(chain, linear(4)).vjps)


@settings(max_examples=40)
@given(st.integers(2, 8), SEEDS, st.data())
def test_elements_are_crossed_where_a_vjp_takes_no_more_multiply_adds(n, seed, data):
    chain = random_chain(n, seed)
    terms = [data.draw(st.integers(0, 2 * element.pattern.nnz)) for element in chain.elements]
    pairs = zip(chain.elements, terms, strict=True)
    chain = Chain(tuple(replace(element, vjp_multiply_adds=most) for element, most in pairs))
    schedule = hybrid(n, data.draw(st.integers(0, up_sweep_levels(n))))
    steps = with_input_gradient(schedule).steps
    multiplied = {s for step in steps if step.kind == "mm" for s in (step.left, step.right)}
    single = {step.split for step in steps if step.begin == 0 and step.end == step.split + 1}
    free = {k for k in single if (k, k + 1) not in multiplied}
    fewer = {k for k, e in enumerate(chain.elements, 1) if e.vjp_terms <= e.pattern.nnz}
    crossed = with_vjps(chain, schedule)
    assert set(crossed.vjps) == free & fewer
    sizes, budget = ChainSizes(chain), Budget(2, 4)
    assert budget.bytes(sizes, crossed) <= budget.bytes(sizes, schedule)


# ---- critical paths ----


@settings(max_examples=60)
@given(st.integers(0, 40), st.integers(1, 6), SEEDS)
def test_critical_paths_respect_operands_and_workers(n, workers, seed):
    """Workers run their steps one after another, each when its operands are there."""
    chain, budget = random_chain(n, seed), Budget(2, 8, workers)
    sizes = ChainSizes(chain)
    placed, length = assign_workers(sizes, blelloch(n), budget)
    assert set(placed.table[:, 5].tolist()) <= set(range(workers))
    assert placed.with_workers(0) == blelloch(n)
    durations = np.array(multiply_adds(sizes, blelloch(n), 2), float)
    unbounded = critical_path(sizes, blelloch(n), replace(budget, workers=n + 1))
    assert max(unbounded, durations.sum() / workers) <= length <= durations.sum()
    if workers == 1:
        assert length == durations.sum()


@settings(max_examples=40)
@given(placements(), st.integers(1, 5), SEEDS)
def test_ranks_run_their_steps_in_order(placement, batch, seed):
    """Each rank starts a step when it is free and both operands are there."""
    schedule, ranks = placement.schedule, placement.ranks
    sizes = ChainSizes(random_chain(schedule.n, seed))
    budget = Budget(batch, 8, ranks, owners=tuple(placement.owners[1:].tolist()))
    there, free = {}, [0] * ranks
    for step, terms in zip(schedule.steps, multiply_adds(sizes, schedule, batch), strict=True):
        start = max(there.get(step.left, 0), there.get(step.right, 0), free[step.worker])
        free[step.worker] = there[step.out] = start + terms
    assert assign_workers(sizes, schedule, budget) == (schedule, max(free))


@pytest.mark.parametrize("workers", [1, 4, 32, 100])
@pytest.mark.parametrize("size", [1, 6])
def test_automatic_levels_have_the_fewest_multiply_adds_on_the_critical_path(size, workers):
    chain, budget = dense_chain(31, size), Budget(2, 4, workers)
    plan = build_plan([chain], {"layers": []}, budget, schedules=["hybrid"])
    chosen, sizes = plan.schedule(0, "hybrid"), ChainSizes(chain)
    lengths = [critical_path(sizes, hybrid(31, levels), budget) for levels in range(5)]
    assert lengths[chosen.levels] == min(lengths) and critical_path(sizes, chosen, budget) == min(lengths)
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
