"""When actions of a pipeline run: against a clock that ticks, and by formula."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bppsa_cupy as bp
from bppsa_cupy.pipeline import make_schedule
from bppsa_cupy.pipeline.schedules import BACKWARD, FORWARD, SCHEDULES, UPDATE, WEIGHTS
from bppsa_cupy.pipeline.simulation import simulate, simulate_accelerators
from bppsa_cupy.pipeline.times import StageTimes


def by_ticks(schedule, times, messages):
    """The end of every action by what it is, times in ticks: at each tick a rank that is idle begins its next
    action if what it takes has come."""
    queues = [list(schedule.actions(rank)) for rank in range(schedule.ranks)]
    seconds = {FORWARD: times.forward, BACKWARD: times.backward, UPDATE: times.update}
    if schedule.kind.splits:
        rest = [whole - sent for whole, sent in zip(times.backward, times.sent, strict=True)]
        seconds |= {BACKWARD: times.sent, WEIGHTS: rest}
    busy_until, arrivals, ends, now = [0] * schedule.ranks, {}, {}, 0
    while any(queues):
        again = True
        while again:  # actions of no time end in the tick in which they begin
            again = False
            for rank, queue in enumerate(queues):
                if not queue or busy_until[rank] > now:
                    continue
                action = queue[0]
                what, part = (action.kind, action.stage), (action.batch, action.micro)
                stage = action.stage
                neighbour = {FORWARD: stage - 1, BACKWARD: stage + 1}.get(action.kind, -1)
                if 0 <= neighbour < schedule.stages and arrivals.get((*what, *part), np.inf) > now:
                    continue
                queue.pop(0)
                busy_until[rank] = ends[(*what, *part)] = now + seconds[action.kind][stage]
                if action.kind == FORWARD and stage + 1 < schedule.stages:
                    arrivals[(FORWARD, stage + 1, *part)] = busy_until[rank] + messages[stage]
                elif action.kind == BACKWARD and stage > 0:
                    arrivals[(BACKWARD, stage - 1, *part)] = now + times.sent[stage] + messages[stage - 1]
                again = True
        now += 1
    return ends


@st.composite
def cases(draw):
    name, stages = draw(st.sampled_from(sorted(SCHEDULES))), draw(st.integers(1, 4))
    micro, ranks = draw(st.integers(1, 3)) if SCHEDULES[name].micro else 1, stages
    if SCHEDULES[name].interleaves:
        stages, micro = stages * draw(st.integers(1, 2)), micro * stages

    def rows(least):
        return tuple(draw(st.lists(st.integers(least, 5), min_size=stages, max_size=stages)))

    backward = rows(0)
    sent = tuple(draw(st.integers(0, most)) for most in backward)
    times = StageTimes(rows(0), backward, rows(0), sent)
    messages = draw(st.lists(st.integers(0, 4), min_size=stages - 1, max_size=stages - 1))
    return make_schedule(name, stages, draw(st.integers(1, 5)), micro, ranks), times, messages


@given(cases())
def test_ends_are_those_of_a_clock_that_ticks(case):
    schedule, times, messages = case
    ours, theirs = simulate(schedule, times, messages), by_ticks(schedule, times, messages)
    for action, end in zip(schedule.actions(), ours.ends, strict=True):
        assert end == theirs[action.kind, action.stage, action.batch, action.micro]
    assert ours.seconds == max(theirs.values())
    by_stage = times.by_stage(schedule.micro)
    work = [schedule.batches * sum(by_stage[rank :: schedule.ranks]) for rank in range(schedule.ranks)]
    np.testing.assert_allclose(ours.busy, work)
    np.testing.assert_allclose(ours.bubbles * ours.seconds, ours.seconds - np.array(work))
    assert ours.seconds_per_batch * schedule.batches == pytest.approx(ours.seconds)


def equal_times(stages, forward, backward):
    return StageTimes((forward,) * stages, (backward,) * stages, (0.0,) * stages, (backward,) * stages)


@given(st.integers(0, 6), st.integers(1, 9), st.integers(1, 3), st.sampled_from(["gpipe", "1f1b"]))
def test_bubbles_of_micro_batches(K, m, batches, name):
    found = simulate(make_schedule(name, K + 1, batches, m), equal_times(K + 1, 1.0, 2.0))
    np.testing.assert_allclose(found.bubbles, K / (m + K), atol=1e-12)


@given(st.integers(0, 5), st.integers(1, 30))
def test_equal_stages_with_stale_weights(K, batches):
    schedule, times = make_schedule("stale", K + 1, batches), equal_times(K + 1, 1.0, 2.0)
    alone = batches * sum(times.by_stage())
    # What one rank has to do, and the K forward and K backward stages before and behind it.
    ranks = simulate(schedule, times)
    assert ranks.seconds == 3 * batches + 3 * K
    assert alone / ranks.seconds == pytest.approx((K + 1) * batches / (batches + K))
    # A cycle takes as long as the accelerator with the most work: 3 with the middle one at work, which is in
    # the N cycles from K on; before it forward passes alone, and behind it ways back alone.
    accelerators = simulate_accelerators(schedule, times)
    assert accelerators.count == 2 * K + 1 and schedule.cycles == 2 * K + batches
    assert accelerators.seconds == K * 1 + batches * 3 + K * 2


def test_cycles_of_accelerators_by_hand():
    """K = 1, 3 batches: cycle 0 forward; 1 and 2 forward, and the middle; and so on to the last way back."""
    times = StageTimes((4.0, 2.0), (7.0, 3.0), (1.0, 0.5), (7.0, 3.0))
    found = simulate_accelerators(make_schedule("stale", 2, 3), times)
    # Accelerator 0: F0. Accelerator 1: F1, B1, U1, 5.5 together. Accelerator 2: B0, U0, 8 together.
    assert found.seconds == 4 + 5.5 + 8 + 8 + 8
    np.testing.assert_allclose(found.busy, [12, 16.5, 24])
    rows = zip(found.schedule.actions(), found.places, found.starts, strict=True)
    begins = {(a.cycle, place): start for a, place, start in rows if a.kind == FORWARD}
    assert begins == {(0, 0): 0, (1, 0): 4, (2, 0): 9.5, (1, 1): 4, (2, 1): 9.5, (3, 1): 17.5}


def test_what_is_refused():
    times = equal_times(2, 1.0, 1.0)
    with pytest.raises(bp.BppsaError, match="2 stages and the schedule has 3"):
        simulate(make_schedule("stale", 3, 1), times)
    with pytest.raises(bp.BppsaError, match="'gpipe' was asked for"):
        simulate_accelerators(make_schedule("gpipe", 2, 1), times)
    with pytest.raises(bp.BppsaError, match="forward 2, backward 1"):
        StageTimes((1, 1), (1,), (1, 1), (1, 1))
    with pytest.raises(bp.BppsaError, match="seconds from 0 on"):
        StageTimes((1.0,), (-1.0,), (1.0,), (1.0,))
