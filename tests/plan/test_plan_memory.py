"""The memory plan: no two live segments overlap, and space is used again."""

import itertools
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import plan_of, random_chain, small_network

from bppsa_cupy.csr import Pattern, index_dtype
from bppsa_cupy.plan import Budget, Chain, Element
from bppsa_cupy.plan.algorithms import blelloch, hybrid, linear, with_input_gradient
from bppsa_cupy.plan.memory import ALIGNMENT, _Arena, memory_plan
from bppsa_cupy.plan.product.symbolic import map_bytes, map_dtype
from bppsa_cupy.plan.schedule import Schedule, Step, up_sweep_levels
from bppsa_cupy.plan.sizes import ChainSizes
from bppsa_cupy.plan.sizes.pattern_sizes import PatternSizes, multiply_adds


def live_ranges(schedule):
    """Segment -> (first, last) level at which its values are needed, both inclusive; inputs begin at -1."""
    first, last = {(0, 1): -1}, {(0, 1): schedule.depth}
    for step in schedule.steps:
        first[step.out] = last[step.out] = step.level
        for operand in (step.left, step.right):
            first.setdefault(operand, -1)
            last[operand] = max(last.get(operand, -1), step.level)
    return {s: (first[s], last[s] if s[0] else schedule.depth) for s in first}


def check(chain_plan, schedule, batch_size):
    plan = memory_plan(chain_plan.sizes, schedule, batch_size, 4)
    ranges = live_ranges(schedule)
    assert set(plan.offsets) == set(ranges)
    for segment, (offset, size) in plan.offsets.items():
        assert size == chain_plan.sizes.values_size(segment, batch_size)
        assert offset % ALIGNMENT == 0 and 0 <= offset and offset + size <= plan.tops[-1]
    for level in range(-1, schedule.depth + 1):
        live = [s for s, (first, last) in ranges.items() if first <= level <= last]
        taken = sorted(plan.offsets[s] for s in live if plan.offsets[s][1])
        for (start, size), (following, _) in pairwise(taken):
            assert start + size <= following
    assert len(plan.tops) == schedule.depth + 1 and plan.total_bytes == 4 * plan.tops[-1]
    return plan


@settings(max_examples=60)
@given(st.integers(0, 20), st.integers(1, 70), st.integers(0, 2**32 - 1), st.data())
def test_live_segments_never_overlap(n, batch_size, seed, data):
    levels = data.draw(st.integers(0, up_sweep_levels(n)))
    plan = plan_of(random_chain(n, seed), schedules=["hybrid"], levels=levels, batch_size=batch_size)
    schedule = plan.schedule(0, "hybrid")
    check(plan.chains[0], schedule, batch_size)
    check(plan.chains[0], with_input_gradient(schedule), batch_size)


def first_fit(requests):
    """Where each (first level, last level, size) goes, one after the other, by looking at every place."""
    placed = []
    for first, last, size in requests:
        size = -(-size // ALIGNMENT) * ALIGNMENT
        taken = sorted((o, o + s) for f, e, s, o in placed if e >= first and s)
        offset = 0
        for start, end in taken:
            if start - offset >= size:
                break
            offset = max(offset, end)
        placed.append((first, last, size, offset if size else 0))
    return [offset for *_, offset in placed]


@settings(max_examples=40)
@given(st.integers(0, 20), st.integers(1, 70), st.integers(0, 2**32 - 1), st.integers(0, 4))
def test_the_layout_is_first_fit_the_largest_of_a_level_first(n, batch_size, seed, levels):
    schedule, counts = hybrid(n, min(levels, up_sweep_levels(n))), ChainSizes(random_chain(n, seed))
    assert_first_fit(schedule, counts, batch_size)


def test_of_equal_ones_of_a_level_the_first_to_begin_is_placed_first():
    """M(2, 4) and M(1, 4), made at one level in this order."""
    chain = Chain((Element("J", Pattern.dense(3, 3), False),) * 5)
    made = [(0, 1, 2, 3), (1, 2, 3, 4), (1, 1, 3, 4)]
    schedule = Schedule.of("hybrid", 5, [Step(*step, "mm", 0) for step in made])
    assert_first_fit(schedule, ChainSizes(chain), 7)


def assert_first_fit(schedule, counts, batch_size):
    ranges = live_ranges(schedule)
    sizes = {segment: counts.values_size(segment, batch_size) for segment in ranges}
    order = sorted(ranges, key=lambda segment: (ranges[segment][0], -sizes[segment], segment))
    expected = first_fit([(*ranges[segment], sizes[segment]) for segment in order])
    plan = memory_plan(counts, schedule, batch_size, 4)
    assert [plan.offsets[segment] for segment in order] == [
        (offset, sizes[segment]) for offset, segment in zip(expected, order, strict=True)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_ranges_are_the_first_that_are_free(seed):
    """Against a set of the places that are taken, over many requests."""
    generator, arena = np.random.default_rng(seed), _Arena()
    held, places = [], set()
    for _ in range(200):
        gives, (size, count) = generator.random() < 0.55, generator.integers([0, 1], [5, 4]).tolist()
        if gives and held:
            offset, size = held.pop(int(generator.integers(len(held))))
            arena.give(offset * ALIGNMENT, size * ALIGNMENT)
            places -= set(range(offset, offset + size))
            continue
        wanted = size * ALIGNMENT - (size > 0) * int(generator.integers(ALIGNMENT))
        for offset in arena.take(wanted, count):
            first = next(at for at in itertools.count() if places.isdisjoint(range(at, at + size)))
            assert offset == (first * ALIGNMENT if size else 0)
            places |= set(range(first, first + size))
            held += [(first, size)] if size else []
    assert arena.top >= ALIGNMENT * (max(places, default=-1) + 1)


def test_every_operand_is_live_where_it_is_read():
    for schedule in (linear(9), blelloch(9), hybrid(9, 2), with_input_gradient(blelloch(9))):
        ranges = live_ranges(schedule)
        for step in schedule.steps:
            for operand in (step.left, step.right):
                first, last = ranges[operand]
                assert first < step.level <= last
        assert all(ranges[0, k] == (ranges[0, k][0], schedule.depth) for k in range(1, 10))


def test_inputs_are_live_from_the_start_and_unread_ones_take_nothing():
    ranges = live_ranges(linear(4))
    assert {s for s, (first, _) in ranges.items() if first == -1} == {(0, 1), (1, 2), (2, 3), (3, 4)}
    assert (4, 5) not in ranges and (4, 5) in live_ranges(with_input_gradient(linear(4)))


def test_space_is_shared():
    plan = plan_of(small_network())
    chain, schedule = plan.chains[0], plan.schedule(0, "blelloch")
    layout = check(chain, schedule, 16)
    assert layout.tops[-1] < sum(-(-size // ALIGNMENT) * ALIGNMENT for _, size in layout.offsets.values())


def test_shared_values_do_not_grow_with_the_batch():
    chain = plan_of(small_network()).chains[0].sizes
    assert chain.values_size((1, 2), 1) == chain.values_size((1, 2), 8) == 90
    assert chain.values_size((2, 3), 8) == 8 * 72
    assert chain.values_size((0, 3), 8) == 8 * 72


@pytest.mark.parametrize("n", [0, 1])
def test_chains_without_a_step(n):
    plan = plan_of(random_chain(n))
    layout = check(plan.chains[0], plan.schedule(0, "blelloch"), 3)
    assert set(layout.offsets) == {(0, 1)}


def huge(rows, columns, row_length):
    """The counts of a pattern that is too large to make."""
    total = rows * row_length // columns
    return PatternSizes((rows, columns), np.full(rows, row_length), np.full(columns, total), False)


@pytest.mark.parametrize("scale, width", [(2**15 - 1, np.int32), (2**15, np.int64)])
def test_positions_are_wide_where_terms_pass_two_to_the_31(scale, width):
    a, b = huge(2**16, scale, scale), huge(scale, 2**16, 1)
    terms = multiply_adds(a, b)
    assert terms == 2**16 * scale and map_dtype(a, b, terms) == width
    assert map_bytes(a, b, "terms", 2**20, terms) == (2**20 + 1 + 2 * terms) * np.dtype(width).itemsize


def test_patterns_are_wide_where_entries_pass_two_to_the_31():
    assert index_dtype(2**31 - 1) is np.int32 and index_dtype(2**31) is np.int64
    sizes = FakeSizes(2**31)
    assert sizes.pattern_bytes((1, 2)) == (2**31 + 18 + 1) * 8
    assert FakeSizes(2**30).pattern_bytes((1, 2)) == (2**30 + 18 + 1) * 4


def test_patterns_are_wide_where_rows_or_columns_pass_two_to_the_31():
    for rows, columns, width in ((5, 2**31, 8), (5, 2**31 - 1, 4)):
        wide = Chain(
            (Element("a", Pattern((rows, columns), np.zeros(rows + 1, int), np.zeros(0, int)), True),)
        )
        sizes = ChainSizes(wide, np.zeros((0, 2), int))
        sizes.nnz = lambda segment: 3
        assert sizes.pattern_bytes((1, 2)) == (3 + rows + 1) * width


def test_no_values_take_nothing_of_any_batch():
    empty = Chain((Element("a", Pattern.dense(0, 0), False),))
    sizes = ChainSizes(empty, np.array([[1, 2]]))
    assert sizes.values_sizes(np.array([[0, 1], [1, 2]]), 2**60).tolist() == [0, 0]


def test_values_beyond_two_to_the_31_have_places():
    """nnz·B of 2⁴⁰: offsets are counted, nothing is taken."""
    schedule = blelloch(6)
    plan = memory_plan(FakeSizes(2**20), schedule, 2**20, 4)
    assert plan.total_bytes == 4 * plan.tops[-1] > 2**42
    taken = sorted(plan.offsets[s] for s, (first, _) in live_ranges(schedule).items() if first == -1)
    assert all(start + size <= following for (start, size), (following, _) in pairwise(taken))


class FakeSizes(ChainSizes):
    """Matrices of so many entries."""

    def __init__(self, entries):
        super().__init__(small_network())
        self.entries = entries

    def nnz(self, segment):
        return self.entries


def test_the_bytes_of_a_scan_by_level():
    counts = plan_of(small_network()).chains[0].sizes
    schedule = with_input_gradient(blelloch(6))
    values = Budget(4, 4, indices=False).bytes_by_level(counts, schedule)
    assert values == [4 * top for top in memory_plan(counts, schedule, 4, 4).tops]
    whole = Budget(4, 4).bytes_by_level(counts, schedule)
    held = counts.index_bytes(schedule)
    assert [w - v for w, v in zip(whole, values, strict=True)] == [0, *held]
    injected = (
        4
        * 4
        * sum(
            counts.chain.length(end)
            for end in [*range(2, 8), *(step.end for step in schedule.steps if step.kind == "mm")]
        )
    )
    affine = Budget(4, 4, indices=False, affine=True).bytes_by_level(counts, schedule)
    assert [a - v for a, v in zip(affine, values, strict=True)] == [injected] * len(values)


def test_a_plan_counts_the_input_gradient():
    plan = plan_of(small_network())
    sizes, schedule, alone = (
        plan.chains[0].sizes,
        plan.schedule(0, "blelloch"),
        Budget(4, 4, input_gradient=False),
    )
    assert plan.bytes("blelloch") == alone.bytes(sizes, with_input_gradient(schedule))
    assert plan.bytes("blelloch") > alone.bytes(sizes, schedule)
