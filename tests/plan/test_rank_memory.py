"""What a rank holds: live segments never overlap, and what is taken is what was predicted."""

from itertools import pairwise

import numpy as np
import pytest
from counting import CountingDevice
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from partition_cases import partitions, placements
from plan_cases import plan_of, random_chain
from ranks_in_turn import Exchange

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices.host import HostDevice
from bppsa_cupy.plan import (
    Budget,
    Chain,
    Element,
    Partition,
    place,
    rank_memory_plan,
    rank_memory_plans,
    rank_peaks,
)
from bppsa_cupy.plan.algorithms import blelloch
from bppsa_cupy.plan.counts import message_bytes
from bppsa_cupy.plan.memory import ALIGNMENT
from bppsa_cupy.plan.schedule import up_sweep_levels
from bppsa_cupy.plan.sizes import ChainSizes
from bppsa_cupy.scan.numeric import NumericScan
from bppsa_cupy.scan.ranks import RankScan


def live_on(placement, rank):
    """Segment -> (first, last) of the rank's own steps at which it is needed; -1 before the first one."""
    steps = [step for step in placement.schedule.steps if step.worker == rank]
    times = {(0, 1): [-1]} if placement.owners[0] == rank else {}
    for at, step in enumerate(steps):
        for operand in (step.left, step.right):
            times.setdefault(operand, [-1]).append(at)
        times[step.out] = [at]
    for message in placement.messages():
        if message.target == rank:
            times.setdefault(message.segment, []).extend([-1, len(steps)])
        if message.source == rank:
            times.setdefault(message.segment, [-1]).append(len(steps))
    return {s: (min(t), max(t) if s[0] else len(steps)) for s, t in times.items()}, len(steps)


@settings(max_examples=20)
@given(placements(12, 4), st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_live_segments_never_overlap(placement, batch, seed):
    sizes = ChainSizes(random_chain(placement.schedule.n, seed))
    for rank in range(placement.ranks):
        plan = rank_memory_plan(sizes, placement, rank, batch, 4)
        live, steps = live_on(placement, rank)
        assert set(plan.offsets) == set(live)
        for segment, (offset, size) in plan.offsets.items():
            assert size == sizes.values_size(segment, batch)
            assert offset % ALIGNMENT == 0 and 0 <= offset and offset + size <= plan.tops[-1]
        for at in range(-1, steps + 1):
            held = [s for s, (first, last) in live.items() if first <= at <= last]
            taken = sorted(plan.offsets[s] for s in held if plan.offsets[s][1])
            assert all(start + size <= following for (start, size), (following, _) in pairwise(taken))
        assert len(plan.tops) == steps + 1 and plan.total_bytes == 4 * plan.tops[-1]
        for matrices in (False, True):
            most = max(
                sum(plan.offsets[s][1] for s, (a, b) in live.items() if a <= at <= b and s[0] >= matrices)
                for at in range(-1, steps + 1)
            )
            assert rank_peaks(sizes, placement, batch, 4, matrices=matrices)[rank] == 4 * most


def test_one_rank_is_laid_out_as_among_all():
    sizes, placement = ChainSizes(random_chain(9, 1)), place(blelloch(9), Partition.equal(9, 3).owners, 3)
    plans = rank_memory_plans(sizes, placement, 5, 4)
    for rank, plan in enumerate(plans):
        assert rank_memory_plan(sizes, placement, rank, 5, 4).offsets == plan.offsets
    assert plans[0].offsets != plans[1].offsets


def jacobian_values(plan):
    """Values of the arena that ever hold a matrix."""
    held, end = 0, 0
    for start, size in sorted(taken for (begin, _), taken in plan.offsets.items() if begin):
        held += max(start + size - max(end, start), 0)
        end = max(end, start + size)
    return held


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 64, 1024])
def test_a_rank_of_algorithm_1_holds_its_share_and_a_matrix_a_level(ranks):
    """n/p + log2 n Jacobians of 1024 equal ones, by a tenth more at the most."""
    n, width = 1024, 8
    chain = Chain((Element("J", Pattern.dense(width, width), False),) * n)
    placement = place(blelloch(n), Partition.equal(n, ranks).owners, ranks)
    plans = rank_memory_plans(ChainSizes(chain), placement, 1, 4)
    most = max(map(jacobian_values, plans)) / width**2
    assert n / ranks - 1 <= most <= 1.1 * (n / ranks + 10)
    peaks = rank_peaks(ChainSizes(chain), placement, 1, 4, matrices=True)
    assert peaks.max() == 4 * most * width**2


# ---- what a scan takes and sends ----


def scanned(scan, chain, owned, batch, values):
    """Write the inputs of a scan, run it, and give the vectors of its own elements."""
    for k in scan.elements_read & set(owned):
        scan.element(k, batch)[...] = values[k] if values[k].ndim == 1 else values[k][:, :batch]
    if 0 in owned:
        scan.vector(1, batch)[...] = values[0][:, :batch]
    scan.run(batch)
    return {k: scan.vector(k, batch).copy() for k in owned if k}


@settings(max_examples=10, phases=[Phase.generate])
@given(st.data(), st.integers(0, 14), st.integers(0, 2**32 - 1))
def test_a_rank_takes_and_sends_what_was_predicted(data, n, seed):
    chain, capacity, batch = random_chain(n, seed), 5, data.draw(st.integers(1, 5))
    levels = data.draw(st.integers(0, up_sweep_levels(n)))
    plan = plan_of(chain, batch_size=capacity, schedules=["hybrid"], levels=levels)
    chain_plan, schedule = plan.chains[0], plan.schedule(0, "hybrid")
    partition = data.draw(partitions(n, 4))
    generator = np.random.default_rng(seed)
    shapes = [(chain.length(1), capacity)]
    shapes += [(e.pattern.nnz,) if e.shared else (e.pattern.nnz, capacity) for e in chain.elements]
    values = [generator.standard_normal(shape) for shape in shapes]
    exchange = Exchange(partition.ranks)
    owners, ranks = tuple(partition.owners.tolist()), partition.ranks
    budget = Budget(capacity, 8, ranks, owners=owners, input_gradient=False, indices=False)
    predicted = budget.bytes_by_rank(chain_plan.sizes, schedule)

    def run(group):
        device = CountingDevice()
        scan = RankScan(group, owners, device, np.float64, chain_plan, schedule, capacity)
        owned = [k for k in range(n + 1) if scan.placement.owners[k] == group.rank]
        for _ in range(2):
            vectors = scanned(scan, chain, owned, batch, values)
        assert device.taken == predicted[group.rank] == scan.memory.total_bytes
        return vectors

    results = exchange.play(run)
    whole = NumericScan(HostDevice(), np.float64, chain_plan, schedule, capacity)
    expected = scanned(whole, chain, range(n + 1), batch, values)
    for rank, own in enumerate(results):
        assert set(own) == {k for k in range(1, n + 1) if owners[k - 1] == rank}
        for k, vector in own.items():
            np.testing.assert_array_equal(vector, expected[k])
    placement = place(schedule, owners, ranks)
    listed = placement.messages(message_bytes(chain_plan.sizes, placement, batch, 8))
    assert sorted(exchange.sent) == sorted(2 * [(m.source, m.target, m.bytes) for m in listed])
