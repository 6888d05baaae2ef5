"""Laws of pipeline schedules, for any number of stages, batches and micro-batches."""

from collections import Counter, deque
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import assert_refused

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.pipeline.schedules import (
    BACKWARD,
    FORWARD,
    SCHEDULES,
    UPDATE,
    live_passes,
    make_schedule,
    staleness,
)


def of_every_name(law):
    """A law, of schedules of every name and drawn sizes."""
    sizes = st.tuples(st.integers(1, 7), st.integers(0, 24), st.integers(1, 6))

    @pytest.mark.parametrize("name", SCHEDULES)
    @settings(max_examples=10)
    @given(sizes=sizes)
    def test(name, sizes):
        stages, batches, micro = sizes
        law(make_schedule(name, stages, batches, micro if SCHEDULES[name].micro else 1))

    return test


@of_every_name
def test_each_micro_batch_goes_once_through_each_stage_each_way(schedule):
    wanted = {
        (kind, stage, batch, micro)
        for kind in (FORWARD, BACKWARD)
        for stage in range(schedule.stages)
        for batch in range(schedule.batches)
        for micro in range(schedule.micro)
    }
    passes = [(a.kind, a.stage, a.batch, a.micro) for a in schedule.actions() if a.kind != UPDATE]
    assert len(passes) == len(wanted) and set(passes) == wanted
    for stage in range(schedule.stages):
        actions = list(schedule.actions(stage))
        assert [a.batch for a in actions if a.kind == UPDATE] == list(range(schedule.batches))
        # An update follows all backward passes of its batch, and none of a later batch.
        for place, action in enumerate(actions):
            if action.kind == UPDATE:
                back = [a.batch for a in actions[:place] if a.kind == BACKWARD]
                assert back.count(action.batch) == schedule.micro and max(back) == action.batch


@of_every_name
def test_what_an_action_takes_was_made_in_an_earlier_cycle(schedule):
    made = {}
    for a in schedule.actions():
        if a.kind == FORWARD and a.stage:
            assert made[FORWARD, a.stage - 1, a.batch, a.micro] < a.cycle
        if a.kind == BACKWARD:
            assert made[FORWARD, a.stage, a.batch, a.micro] <= a.cycle
            if a.stage < schedule.stages - 1:
                assert made[BACKWARD, a.stage + 1, a.batch, a.micro] < a.cycle
        made[a.kind, a.stage, a.batch, a.micro] = a.cycle
    cycles = [a.cycle for a in schedule.actions()]
    assert cycles == sorted(cycles) and schedule.cycles == (cycles[-1] + 1 if cycles else 0)


@of_every_name
def test_staleness_and_live_passes_by_formula(schedule):
    K = schedule.stages - 1
    for stage in range(schedule.stages):
        i = stage + 1  # the paper's number
        degree = {
            "stale": 2 * (K - i + 1), "stale-1f1b": K - i + 1, "pipedream": K - i + 1,
        }.get(schedule.name, 0)  # fmt: skip
        assert degree == staleness(schedule.name, schedule.stages, stage)
        actions = list(schedule.actions(stage))
        for place, a in enumerate(actions):
            if a.kind == FORWARD and a.micro == 0:
                updates = sum(b.kind == UPDATE for b in actions[:place])
                assert a.batch - updates == min(a.batch, degree)
        kinds = [a.kind for a in actions]
        alive = np.cumsum([(kind == FORWARD) - (kind == BACKWARD) for kind in kinds]).max(initial=0)
        full = live_passes(schedule.name, schedule.stages, stage, schedule.micro)
        if SCHEDULES[schedule.name].micro:
            assert alive == (full if schedule.batches else 0)
        else:
            assert full == degree + 1 and alive == min(full, schedule.batches)


@given(st.integers(1, 7), st.integers(1, 30))
def test_the_cycles_of_the_paper(stages, batches):
    K = stages - 1
    for a in make_schedule("stale", stages, batches).actions():
        i, t = a.stage + 1, a.cycle
        assert a.batch == (t - i + 1 if a.kind == FORWARD else t - 2 * K - 1 + i)


@of_every_name
def test_no_deadlock_and_messages_are_taken_in_the_order_of_sending(schedule):
    count = schedule.stages
    ranks = [deque(a for a in schedule.actions(rank) if a.kind != UPDATE) for rank in range(count)]
    sent = {pair: [] for pair in product(range(count), repeat=2)}  # by sender and receiver
    awaited = Counter()
    moved = True
    while moved:
        moved = False
        for rank, queue in enumerate(ranks):
            while queue:
                a = queue[0]
                step = 1 if a.kind == FORWARD else -1
                message = a.batch, a.micro
                if 0 <= (before := rank - step) < count:
                    if message not in sent[before, rank]:
                        break
                    place = sent[before, rank].index(message)
                    assert place + 1 - awaited[before, rank] in (0, 1)  # taken in the order of sending
                    awaited[before, rank] = place + 1
                if 0 <= (to := rank + step) < count:
                    sent[rank, to].append(message)
                queue.popleft()
                moved = True
    assert not any(ranks)


@pytest.mark.parametrize("arguments, value, fix", [
    (("sale", 2, 3), "'sale'", "none, stale, gpipe"), (("stale", 2, 3, 4), "'stale'", "gpipe, 1f1b"),
    (("gpipe", 2, 3, 0), "micro_batches=0", "at least 1"), (("stale", 0, 3), "stages=0", "at least 1"),
])  # fmt: skip
def test_refused_arguments(arguments, value, fix):
    assert_refused(lambda: make_schedule(*arguments), BppsaError, value, fix)
