"""Laws of pipeline schedules, for any number of stages, batches and micro-batches."""

from collections import Counter, deque
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.pipeline.links import MOST_SENT
from bppsa_cupy.pipeline.schedules import (
    BACKWARD,
    FORWARD,
    SCHEDULES,
    UPDATE,
    WEIGHTS,
    live_passes,
    make_schedule,
    staleness,
)


def drawn(name, ranks, batches, micro, each):
    """A schedule of so many ranks, of several stages each and a multiple of micro-batches where it
    interleaves."""
    kind = SCHEDULES[name]
    many = ranks if kind.interleaves else 1
    return make_schedule(
        name, ranks * (each if kind.interleaves else 1), batches, many * micro if kind.micro else 1, ranks
    )


def of_every_name(law):
    """A law, of schedules of every name and drawn sizes."""
    sizes = st.tuples(st.integers(1, 7), st.integers(0, 24), st.integers(1, 6), st.integers(1, 3))

    @pytest.mark.parametrize("name", SCHEDULES)
    @settings(max_examples=10)
    @given(sizes=sizes)
    def test(name, sizes):
        law(drawn(name, *sizes))

    return test


@of_every_name
def test_each_micro_batch_goes_once_through_each_stage_each_way(schedule):
    ways = (FORWARD, BACKWARD, WEIGHTS) if schedule.kind.splits else (FORWARD, BACKWARD)
    wanted = {
        (kind, stage, batch, micro)
        for kind in ways
        for stage in range(schedule.stages)
        for batch in range(schedule.batches)
        for micro in range(schedule.micro)
    }
    found = [(a.kind, a.stage, a.batch, a.micro) for a in schedule.actions() if a.kind != UPDATE]
    assert len(found) == len(wanted) and set(found) == wanted
    assert all(action.rank == action.stage % schedule.ranks for action in schedule.actions())
    for stage in range(schedule.stages):
        own = [a for a in schedule.actions(stage % schedule.ranks) if a.stage == stage]
        assert [a.batch for a in own if a.kind == UPDATE] == list(range(schedule.batches))
        # An update follows all backward passes of its batch, and none of a later batch.
        for place, action in enumerate(own):
            if action.kind == UPDATE:
                back = [a.batch for a in own[:place] if a.kind == ways[-1]]
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
        if a.kind == WEIGHTS:
            assert made[BACKWARD, a.stage, a.batch, a.micro] < a.cycle
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
        missed = schedule.missed_updates(stage)
        np.testing.assert_array_equal(missed, np.minimum(np.arange(schedule.batches), degree))
        alive = live_passes(schedule.name, schedule.stages, stage, schedule.micro, schedule.ranks)
        if SCHEDULES[schedule.name].micro:
            assert schedule.live_passes(stage) == (alive if schedule.batches else 0)
        else:
            assert alive == degree + 1
            assert schedule.live_passes(stage) == min(alive, schedule.batches)
        copies = K - i + 1 if schedule.name == "pipedream" else 0
        assert schedule.stashed_versions(stage) <= copies
        assert schedule.stashed_versions(stage) == copies or schedule.batches <= 2 * copies


@given(st.integers(1, 7), st.integers(1, 30))
def test_the_cycles_of_the_paper(stages, batches):
    K = stages - 1
    for a in make_schedule("stale", stages, batches).actions():
        i, t = a.stage + 1, a.cycle
        assert a.batch == (t - i + 1 if a.kind == FORWARD else t - 2 * K - 1 + i)


@given(st.integers(1, 7), st.integers(1, 9), st.integers(1, 4))
def test_bubbles_of_micro_batches(stages, micro, batches):
    for name in ("gpipe", "1f1b"):
        schedule = make_schedule(name, stages, batches, micro)
        for stage in range(stages):
            busy = sum(a.kind != UPDATE for a in schedule.actions(stage))
            idle = 1 - busy / schedule.cycles
            assert idle == pytest.approx((stages - 1) / (micro + stages - 1))


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_idle_cycles_and_passes_alive_of_ranks_that_interleave_or_split(ranks, groups, each, batches):
    """In cycles of one action: by p ranks of V stages and m micro-batches 2 m V + 2 (p − 1) cycles a batch,
    a V-th of the idle time of 1f1b, and where the way back is split (p − 1) cycles beside the 3 m V actions;
    with no more passes alive on a rank than on the first one, min(p, m) of ZB-H1 as of 1f1b."""
    micro = ranks * groups
    for name, kinds in (("interleaved-1f1b", 2), ("interleaved-zb", 3)):
        schedule = make_schedule(name, ranks * each, batches, micro, ranks)
        idle = (ranks - 1) * (2 if kinds == 2 else 1)
        assert schedule.cycles == batches * (kinds * micro * each + idle)
        alive = [sum(schedule.live_passes(s) for s in range(r, schedule.stages, ranks)) for r in range(ranks)]
        assert max(alive) == alive[0]
    for m in (micro, groups):
        schedule = make_schedule("zb-h1", ranks, batches, m)
        most = {schedule.live_passes(stage) for stage in range(ranks)}
        assert max(most) == min(ranks, m) == make_schedule("1f1b", ranks, batches, m).live_passes(0)
        if m >= ranks:
            assert schedule.cycles == batches * (3 * m + ranks - 1)


@of_every_name
def test_no_deadlock_where_a_message_waits_for_its_receiver(schedule):
    """Messages that MPI keeps nowhere: one is through when its receiver awaits it. Each rank awaits the next
    message of each other one in the order in which that sends, and further ones up to what it takes; and goes
    on with at most MOST_SENT gradients of a stage that are not through."""
    last, count = schedule.stages - 1, schedule.ranks
    ranks = [
        deque(a for a in schedule.actions(rank) if a.kind in (FORWARD, BACKWARD)) for rank in range(count)
    ]
    step = {FORWARD: 1, BACKWARD: -1}
    sent = {pair: [] for pair in product(range(count), repeat=2)}  # by sender and receiver
    awaited = Counter()
    moved = count > 1
    while moved:
        moved = False
        for rank, own in enumerate(ranks):
            while own:
                a = own[0]
                before, to = a.stage - step[a.kind], a.stage + step[a.kind]
                if 0 <= before <= last:
                    pair = before % count, rank
                    what = a.kind, a.stage, a.batch, a.micro
                    if what not in sent[pair]:
                        awaited[pair] = max(awaited[pair], len(sent[pair]))
                        break
                    awaited[pair] = max(awaited[pair], sent[pair].index(what) + 1)
                pair = rank, to % count
                if 0 <= to <= last:
                    under_way = [w for w in sent[pair][awaited[pair] + 1 :] if w[:2] == (a.kind, to)]
                    if a.kind == BACKWARD and len(under_way) > MOST_SENT:
                        break
                    sent[pair].append((a.kind, to, a.batch, a.micro))
                own.popleft()
                moved = True
    assert count == 1 or not any(ranks)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sale", 2, 3), "'sale'.*none, stale, gpipe, 1f1b, pipedream, stale-1f1b, interleaved-1f1b, zb-h1"),
        (
            ("stale", 2, 3, 4),
            "4 micro-batches.*'stale' has whole batches: take gpipe, 1f1b, interleaved-1f1b",
        ),
        (("interleaved-1f1b", 4, 1, 3), "3 micro-batches.*groups of as many.*a multiple of 2"),
        (("interleaved-zb", 3, 1, 2, 2), "3 stages were asked for on 2 ranks .*a multiple of 2"),
        (("1f1b", 4, 1, 2, 2), "4 stages .* on 2 ranks .*'1f1b' has a stage a rank: take interleaved-1f1b"),
        (("gpipe", 2, 3, 0), "micro_batches=0"),
        (("stale", 0, 3), "stages=0"),
        (("stale", 2, -1), "batches=-1"),
    ],
)
def test_what_is_refused(arguments, words):
    with pytest.raises(BppsaError, match=words):
        make_schedule(*arguments)
