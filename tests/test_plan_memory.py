"""The memory plan: no two live segments overlap, and space is used again."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import plan_of, random_chain, small_network

from bppsa_cupy.plan.memory import ALIGNMENT, live_ranges, memory_plan
from bppsa_cupy.plan.schedule import blelloch, hybrid, linear, up_sweep_levels, with_input_gradient


def check(chain_plan, schedule, batch_size):
    plan = memory_plan(chain_plan, schedule, batch_size, 4)
    ranges = live_ranges(schedule)
    assert set(plan.offsets) == set(ranges)
    for segment, (offset, size) in plan.offsets.items():
        assert size == chain_plan.values_size(segment, batch_size)
        assert offset % ALIGNMENT == 0 and 0 <= offset and offset + size <= plan.total_values
    for level in range(-1, schedule.depth + 1):
        live = [s for s, (first, last) in ranges.items() if first <= level <= last]
        taken = sorted(plan.offsets[s] for s in live if plan.offsets[s][1])
        for (start, size), (following, _) in pairwise(taken):
            assert start + size <= following
    assert plan.total_bytes == 4 * plan.total_values
    assert len(plan.tops) == schedule.depth + 1 and plan.tops[-1] == plan.total_values
    return plan


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 20), st.integers(1, 70), st.integers(0, 2**32 - 1), st.data())
def test_live_segments_never_overlap(n, batch_size, seed, data):
    levels = data.draw(st.integers(0, up_sweep_levels(n)))
    plan = plan_of(random_chain(n, seed), schedules=["hybrid"], levels=levels, batch_size=batch_size)
    schedule = plan.schedule(0, "hybrid")
    check(plan.chains[0], schedule, batch_size)
    check(plan.chains[0], with_input_gradient(schedule), batch_size)


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
    assert layout.total_values < sum(-(-size // ALIGNMENT) * ALIGNMENT for _, size in layout.offsets.values())


def test_shared_values_do_not_grow_with_the_batch():
    chain = plan_of(small_network()).chains[0]
    assert chain.values_size((1, 2), 1) == chain.values_size((1, 2), 8) == 90
    assert chain.values_size((2, 3), 8) == 8 * 72
    assert chain.values_size((0, 3), 8) == 8 * 72


@pytest.mark.parametrize("n", [0, 1])
def test_chains_without_a_step(n):
    plan = plan_of(random_chain(n))
    layout = check(plan.chains[0], plan.schedule(0, "blelloch"), 3)
    assert set(layout.offsets) == {(0, 1)}
