"""Arenas: no two live segments overlap, space is used again, and a memory limit holds."""

from itertools import pairwise

import numpy as np
import pytest
from counting import CountingDevice
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from partition_cases import partitions, placements, schedules
from plan_cases import plan_of, random_chain, small_network
from ranks_in_turn import Exchange
from refusals import assert_refused

from bppsa_cupy.csr import Pattern, index_dtype
from bppsa_cupy.devices.host import HostDevice
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import Budget, Chain, Element, place, rank_memory_plan
from bppsa_cupy.plan.product import map_dtype
from bppsa_cupy.plan.schedule import blelloch, up_sweep_levels
from bppsa_cupy.plan.sizes import ALIGNMENT, ChainSizes, PatternSizes, memory_plan
from bppsa_cupy.scan.numeric import NumericScan, RankScan

SEEDS = st.integers(0, 2**32 - 1)


def assert_layout(plan, live, sizes, batch):
    """Every live segment has its values' place, and no two of one time overlap."""
    assert set(plan.offsets) == set(live)
    segments = np.array(sorted(live), np.int64).reshape(-1, 2)
    counts = sizes.values_sizes(segments, batch)
    for segment, count in zip(map(tuple, segments.tolist()), counts.tolist(), strict=True):
        offset, size = plan.offsets[segment]
        assert size == count and offset % ALIGNMENT == 0 <= offset
        assert 4 * (offset + size) <= plan.total_bytes
    for at in {time for both in live.values() for time in both}:
        held = [s for s, (first, last) in live.items() if first <= at <= last]
        taken = sorted(plan.offsets[s] for s in held if plan.offsets[s][1])
        assert all(start + size <= following for (start, size), (following, _) in pairwise(taken))


@settings(max_examples=60)
@given(st.integers(0, 20).flatmap(schedules), st.integers(1, 70), SEEDS)
def test_live_segments_never_overlap(schedule, batch, seed):
    sizes = ChainSizes(random_chain(schedule.n, seed))
    live = {(0, 1): (-1, schedule.depth)}
    for step in schedule.steps:
        live[step.out] = (step.level, step.level if step.begin else schedule.depth)
        for operand in (step.left, step.right):
            first, last = live.get(operand, (-1, -1))
            live[operand] = (first, max(last, step.level))
    assert_layout(memory_plan(sizes, schedule, batch, 4), live, sizes, batch)


@settings(max_examples=30)
@given(placements(12, 4), st.integers(1, 70), SEEDS)
def test_live_segments_of_a_rank_never_overlap(placement, batch, seed):
    sizes = ChainSizes(random_chain(placement.schedule.n, seed))
    for rank in range(placement.ranks):
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
        live = {s: (min(t), max(t) if s[0] else len(steps)) for s, t in times.items()}
        assert_layout(rank_memory_plan(sizes, placement, rank, batch, 4), live, sizes, batch)


def test_positions_are_wide_where_terms_or_entries_pass_two_to_the_31():
    def huge(rows, columns, row_length):
        counts = np.full(columns, rows * row_length // columns)
        return PatternSizes((rows, columns), np.full(rows, row_length), counts, False)

    assert index_dtype(2**31 - 1) is np.int32 and index_dtype(2**31) is np.int64
    for scale, width in ((2**15 - 1, np.int32), (2**15, np.int64)):
        a, b, terms = huge(2**16, scale, scale), huge(scale, 2**16, 1), 2**16 * scale
        assert map_dtype(a, b, terms) == width


class Many(ChainSizes):
    """Matrices of 2²⁰ entries."""

    def nnz(self, segment):
        return 2**20


def test_values_beyond_two_to_the_31_have_places():
    """Offsets of 2⁴⁰ values are counted, and nothing is taken; no values take nothing of any batch."""
    assert memory_plan(Many(small_network()), blelloch(6), 2**20, 4).total_bytes > 2**42
    empty = ChainSizes(Chain((Element("a", Pattern.dense(0, 0), False),)))
    assert empty.values_sizes(np.array([[0, 1], [1, 2]]), 2**60).tolist() == [0, 0]


# ---- what a scan over ranks takes and sends ----


def scanned(scan, owned, batch, values):
    """Write the inputs of a scan, run it, and give the vectors of its own elements."""
    for k in scan.elements_read & set(owned):
        scan.element(k, batch)[...] = values[k] if values[k].ndim == 1 else values[k][:, :batch]
    if 0 in owned:
        scan.vector(1, batch)[...] = values[0][:, :batch]
    scan.run_batch(batch)
    return {k: scan.vector(k, batch).copy() for k in owned if k}


@settings(max_examples=10, phases=[Phase.generate])
@given(st.data(), st.integers(0, 14), SEEDS)
def test_ranks_take_and_send_what_was_planned_and_give_the_bits_of_one(data, n, seed):
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

    def run_rank(group):
        device = CountingDevice()
        scan = RankScan(group, owners, device, np.float64, chain_plan, schedule, capacity)
        owned = [k for k in range(n + 1) if scan.placement.owners[k] == group.rank]
        for _ in range(2):
            vectors = scanned(scan, owned, batch, values)
        assert device.taken == scan.memory.total_bytes
        return vectors, device.taken

    results = exchange.play(run_rank)
    serial = NumericScan(HostDevice(), np.float64, chain_plan, schedule, capacity)
    expected = scanned(serial, range(n + 1), batch, values)
    for rank, (vectors, _) in enumerate(results):
        assert set(vectors) == {k for k in range(1, n + 1) if owners[k - 1] == rank}
        for k, vector in vectors.items():
            np.testing.assert_array_equal(vector, expected[k])
    placement = place(schedule, owners, ranks)
    amounts = (8 * chain_plan.values_sizes(placement.sent[:, 1:3], batch)).tolist()
    sent = [(m.source, m.target, amount) for m, amount in zip(placement.messages(), amounts, strict=True)]
    assert sorted(exchange.sent) == sorted(2 * sent)


# ---- memory limits ----


def needed(name, **options):
    plan = plan_of(small_network(), schedules=[name], **options)
    return Budget(plan.batch_size, plan.itemsize).bytes(plan.chains[0], plan.schedule(0, name))


def test_what_does_not_fit_is_left_out():
    limit = needed("blelloch") - 1
    plan = plan_of(small_network(), memory_limit=limit)
    assert "blelloch" not in plan.schedules and "linear" in plan.schedules
    assert plan.left_out == {"blelloch": limit + 1}
    assert_refused(lambda: plan.schedule(0, "blelloch"), PlanError, f"{limit + 1} bytes")
    assert plan_of(small_network(), memory_limit=limit + 1).left_out == {}


def test_a_schedule_asked_for_that_does_not_fit_is_refused():
    limit = needed("blelloch", batch_size=64) - 1
    with pytest.raises(PlanError, match=rf"{limit + 1} bytes .* {limit} bytes: .*--levels.*--batch-size"):
        plan_of(small_network(), schedules=["blelloch"], memory_limit=limit, batch_size=64)
    amounts = {name: needed(name, levels=2) for name in ("linear", "blelloch", "hybrid")}
    name, least = min(amounts.items(), key=lambda item: item[1])
    with pytest.raises(PlanError, match=f"schedule {name} needs {least} bytes"):
        plan_of(small_network(), levels=2, memory_limit=least - 1)
