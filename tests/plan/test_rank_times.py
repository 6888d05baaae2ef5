"""When a schedule runs over ranks, against a simulation in plain Python."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_cases import placements
from plan_cases import random_chain

from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan import Budget, Chain, Element, Partition, place
from bppsa_cupy.plan.algorithms import blelloch, linear
from bppsa_cupy.plan.cost import message_bytes, rank_times, schedule_cost
from bppsa_cupy.plan.cost_model import IDEAL, CostModel, Link, Rate
from bppsa_cupy.plan.schedule import BEGIN, KIND, LEVEL, Schedule
from bppsa_cupy.plan.sizes import ChainSizes


def simulated(placement, seconds, travelling):
    """When each rank is ready, event by event: a message leaves when its segment is there."""
    owners, ranks = placement.owners.tolist(), placement.ranks
    there = {((k, k + 1), owner): 0.0 for k, owner in enumerate(owners)}
    free = [0.0] * ranks
    sent = {m.segment: [] for m in placement.messages()}
    for message in placement.messages():
        sent[message.segment].append(message)

    def leave(segment, at):
        for message in sent.get(segment, ()):
            there[segment, message.target] = at + travelling[message.segment, message.target]

    for k in range(len(owners)):
        leave((k, k + 1), 0.0)
    for step, own in zip(placement.schedule.steps, seconds, strict=True):
        rank = step.worker
        start = max(there[step.left, rank], there[step.right, rank], free[rank])
        free[rank] = there[step.out, rank] = start + own
        leave(step.out, free[rank])
    for k in range(1, placement.schedule.n + 1):
        free[owners[k]] = max(free[owners[k]], there[(0, k), owners[k]])
    return free


@settings(max_examples=60)
@given(placements(), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_the_plain_simulation_says_the_same(placement, batch, seed):
    generator = np.random.default_rng(seed)
    sizes = ChainSizes(random_chain(placement.schedule.n, seed))
    link = Link(float(generator.random()), float(generator.uniform(1, 100)))
    seconds = generator.random(len(placement.schedule.table))
    amounts = message_bytes(sizes, placement, batch, 8)
    travelling = {
        (m.segment, m.target): link.latency + 8 * sizes.values_size(m.segment, batch) / link.bytes_per_second
        for m in placement.messages()
    }
    assert amounts.tolist() == [8 * sizes.values_size(m.segment, batch) for m in placement.messages()]
    times = rank_times(sizes, placement, seconds, link, batch, 8)
    np.testing.assert_allclose(times.free, simulated(placement, seconds, travelling), rtol=1e-12)
    assert times.seconds == max(times.free)


@pytest.mark.parametrize("seed", range(6))
def test_the_first_step_may_make_any_segment(seed):
    """Products before vectors, from the last elements on: step 0 makes another step's right operand."""
    table = blelloch(8).table
    table = table[np.lexsort((-table[:, BEGIN], -table[:, KIND], table[:, LEVEL]))]
    schedule = Schedule("blelloch", 8, table)
    assert 0 in schedule.makers[:, 1]
    generator = np.random.default_rng(seed)
    placement = place(schedule, np.sort(generator.integers(0, 3, 8)).tolist(), 3)
    sizes, link = ChainSizes(random_chain(8, seed)), Link(0.5, 50.0)
    seconds = generator.random(len(table))
    travelling = {
        (m.segment, m.target): 0.5 + 8 * sizes.values_size(m.segment, 2) / 50.0 for m in placement.messages()
    }
    times = rank_times(sizes, placement, seconds, link, 2, 8)
    np.testing.assert_allclose(times.free, simulated(placement, seconds, travelling), rtol=1e-12)


@given(placements(), st.integers(0, 2**32 - 1))
def test_messages_only_cost(placement, seed):
    """No time is below a rank's own work, nor below that without messages; one rank takes the work."""
    sizes = ChainSizes(random_chain(placement.schedule.n, seed))
    seconds = np.random.default_rng(seed).random(len(placement.schedule.table))
    free = rank_times(sizes, placement, seconds, Link(0.0, math.inf), 2, 4)
    slow = rank_times(sizes, placement, seconds, Link(0.1, 100.0), 2, 4)
    assert (slow.free >= free.free).all()
    for rank in range(placement.ranks):
        assert free.free[rank] >= seconds[placement.steps_of(rank)].sum() * (1 - 1e-12)
    alone = place(placement.schedule, [0] * placement.schedule.n, 1)
    np.testing.assert_allclose(
        rank_times(sizes, alone, seconds, Link(9.0, 9.0), 2, 4).seconds, seconds.sum(), rtol=1e-12
    )


def test_nothing_to_run():
    for n in (0, 1):
        placement = place(linear(n), [1] * n, 2)
        times = rank_times(ChainSizes(random_chain(n)), placement, np.zeros(0), Link(1.0, 1.0), 1, 4)
        assert times.seconds == 0 and times.free.tolist() == [0.0, 0.0]


def test_equation_6():
    """Algorithm 1 over equal elements: n/p + log p steps, the serial scan n (paper, 3.6)."""
    n, width = 1024, 1
    sizes = ChainSizes(Chain((Element("J", Pattern.dense(width, width), False),) * n))
    for ranks in (1, 2, 16, 128, 1024):
        budget = Budget(1, 4, ranks, IDEAL, owners=tuple(Partition.equal(n, ranks).owners.tolist()))
        own = schedule_cost(sizes, blelloch(n), budget).seconds
        assert n / ranks <= own + 2 and own <= 2 * (n / ranks + math.log2(ranks))
        assert schedule_cost(sizes, linear(n), budget).seconds == n - 1


def test_a_link_is_part_of_the_model():
    """Two ranks, one vector of 3·4 bytes between them."""
    chain = Chain((Element("J", Pattern.dense(3, 3), False),) * 3)
    model = CostModel("m", Rate(9.0, math.inf), 0.5, 0.0, link=Link(2.0, 6.0))
    cost = schedule_cost(ChainSizes(chain), linear(3), Budget(1, 4, 2, model, owners=(0, 0, 1)))
    # Two products of nine multiply-adds and a launch on rank 0; the message takes 2 s and 12/6 s.
    assert cost.seconds == 2 * 1.5 + 2 + 2
