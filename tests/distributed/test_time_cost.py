"""What the ways back over time cost on several ranks, against ranks played one event after another."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from marks import some
from timescan_cases import CELLS

from bppsa_cupy.distributed.time_cost import (
    best_chunk,
    predicted_seconds,
    split_steps,
)
from bppsa_cupy.plan.cost_model import Link
from bppsa_cupy.processors.models import H200, MODELS, HostModel
from bppsa_cupy.timescan import WalkSize

#: A second a multiply-add, a message of one, and a byte of a message.
COUNTING = HostModel("one", 1, 0.0, 0.0, (1.0, 1.0), 0.0, 1.0, 1, 1.0, 1.0)
LINK = Link(1.0, 1.0)
#: Two processes of one host.
NEAR = Link(2e-5, 4e9)


def relayed(size, ranks, chunk, groups):
    """When the last rank ends, which go one behind another: a multiply-add a second, by the sizes of the
    matrices alone, group after group, and message after message, for which the sender waits."""
    B, H = size.batch // groups, size.units
    starts = split_steps(size.steps, ranks, chunk)
    free, last = [0.0] * len(starts), len(starts) - 2
    for _ in range(groups):
        arrives = 0.0
        for rank, (start, stop) in enumerate(pairwise(starts)):
            free[rank] = max(free[rank], arrives) + (stop - start) * B * size.cell.gates * H**2
            free[rank] += (1 + 4 * B * H) * (rank < last)
            arrives = free[rank]
    return free[last]


def scanned(size, ranks, chunk, window):
    """When the last rank ends by chunks, likewise."""
    B, H = size.batch, size.units
    starts, now, expanded, own = split_steps(size.steps, ranks, chunk), [], [], []
    for start, stop in pairwise(starts):
        chunks = range(start, stop, chunk)
        now.append(sum(chunk * B * size.cell.gates * H * H * (H + 8) for begin in chunks if begin > 0))
        expanded.append(len(chunks) * -(-(stop - start) // len(chunks)) * B * size.cell.gates * H**2)
        own.append(sum(begin > 0 for begin in chunks))
    holders, held = len(own), [[count] for count in own]
    reach = 1
    while reach < window:
        told = list(zip(now, held, strict=True))
        for place in range(holders - reach):
            then, maps = told[place + reach]
            now[place] = max(now[place], then + 1 + sum(maps) * B * H * (4 * (H + 1) + 4))
            held[place] = held[place] + maps
        reach *= 2
    for place in reversed(range(holders)):
        if place + window < holders:
            now[place] = max(now[place], now[place + window] + 1 + 4 * B * H)
        assert len(held[place]) == min(window, holders - place)
        now[place] += sum(held[place]) * H**2
    ends, rounds = max(map(sum, zip(now, expanded, strict=True))), 0
    while 2**rounds < holders:
        rounds += 1
    return ends + 2 * rounds


@pytest.mark.parametrize("cell", ["tanh", "gru"])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_the_first_chunk_of_all_ranks_alone_is_not_reduced(cell, groups):
    for steps in (1, 7, 60, 61, 80):
        size = WalkSize(CELLS[cell], steps, 4, 3, itemsize=4)
        for ranks in (1, 2, 3, 8):
            for chunk in (1, 5, 30, 100):
                held = np.diff(split_steps(steps, ranks, chunk)).tolist()
                found = predicted_seconds(COUNTING, LINK, size, held, chunk, groups=groups)
                by_chunks = groups * scanned(replace(size, batch=4 // groups), ranks, chunk, found.window)
                from_rank_to_rank = relayed(size, ranks, chunk, groups)
                waits = (groups - 1) * (1 + 4 * 4 // groups * 3)  # for messages, of ranks that send some
                assert found.relayed - waits <= from_rank_to_rank <= found.relayed == found.forward
                # Of ranks that have the same all messages of a round are as long as the longest.
                if len(set(held)) == 1 and len(held) in (1, 2, 8) and not steps % chunk:
                    assert found.scanned == pytest.approx(by_chunks)
                else:
                    assert by_chunks <= found.scanned * (1 + 1e-12)


def test_the_window_is_the_one_by_which_ranks_wait_the_least():
    size = WalkSize(CELLS["tanh"], 64, 4, 3, itemsize=4)
    for latency, rate in ((1.0, 1.0), (1e3, 1.0), (1e5, 1e3), (1.0, 1e-3)):
        link, held = Link(latency, rate), [8] * 8
        by_window = {most: predicted_seconds(COUNTING, link, size, held, 8, most, 1) for most in (1, 2, 4, 8)}
        found = predicted_seconds(COUNTING, link, size, held, 8, None, 1)
        assert found == min(by_window.values(), key=lambda its: its.scanned)
        assert by_window[1].window == 1
        for its in by_window.values():  # reduction, check and those of the scan, and expansion
            launched = predicted_seconds(replace(COUNTING, launch=1.0), link, size, held, 8, its.window, 1)
            if launched.window == its.window:
                assert launched.scanned - its.scanned == pytest.approx(3 + 8 / its.window, rel=1e-6)
    assert (
        predicted_seconds(COUNTING, Link(1.0, 1e-3), size, held, 8, None, 1).window == 1
    )  # bytes: one after another
    # Starts: rounds, the last of which would take as long as the one gradient that half of all hand on.
    assert predicted_seconds(COUNTING, Link(1e9, 1e9), size, held, 8, None, 1).window == 4


def test_ranks_with_a_chunk_each_all_reduce_but_the_first():
    """The 19 to 100 times slower way is not the one that is predicted to cost nothing."""
    for steps, hidden in ((500, 20), (5000, 64), (30000, 20)):
        size = WalkSize(CELLS["tanh"], steps, 16, hidden, itemsize=4)
        found = predicted_seconds(MODELS["host"], NEAR, size, [steps // 2] * 2, steps // 2)
        alone = MODELS["host"].reduce_seconds(replace(size, steps=steps // 2), steps // 2, 0)
        assert found.scanned > alone > 5 * found.relayed


@pytest.mark.parametrize("model", some(MODELS["host"], long=[H200]), ids=["host", "cuda"])
@pytest.mark.parametrize("hidden", some(20, long=(64,)))
@pytest.mark.parametrize("steps", some(500, long=(5000, 30000)))
def test_the_quicker_way_by_the_chosen_chunk_is_within_a_tenth_of_the_best_by_any(model, hidden, steps):
    size = WalkSize(CELLS["tanh"], steps, 16, hidden, itemsize=4)
    for ranks in (1, 2, 4, 16, 64, 256, 1024):

        def quicker(chunk, ranks=ranks):
            held = np.diff(split_steps(steps, ranks, chunk)).tolist()
            return predicted_seconds(model, NEAR, size, held, chunk).least

        chunk = best_chunk(model, NEAR, size, ranks)
        assert chunk <= -(-steps // 2)  # two ranks have steps, where there are two
        every = {-(-steps // chunks) for chunks in range(2, 1500)} | set(range(1, steps // 2, steps // 100))
        assert quicker(chunk) <= 1.1 * min(map(quicker, every))


def test_all_ranks_have_steps_where_walks_take_long():
    size = WalkSize(CELLS["tanh"], 1000, 256, 512, itemsize=4)
    for ranks in (2, 3, 64):
        chunk = best_chunk(MODELS["host"], NEAR, size, ranks)
        assert len(split_steps(1000, ranks, chunk)) - 1 == ranks
    assert best_chunk(COUNTING, LINK, replace(size, steps=1), 4) == 1


def test_samples_go_in_groups_where_the_model_gains_by_it():
    size, held = WalkSize(CELLS["tanh"], 5000, 64, 64, itemsize=4), [2500, 2500]
    one = replace(MODELS["host"], workers=1)
    found = predicted_seconds(one, NEAR, size, held, 2500)
    whole = one.walk_seconds(size, "forward", 1)
    assert found.groups == 4 and found.forward == pytest.approx(5 / 8 * whole, rel=2e-2)
    for model, batch, steps in ((H200, 64, 5000), (one, 65, 5000), (one, 64, 2), (one, 16, 5000)):
        assert predicted_seconds(model, NEAR, replace(size, batch=batch), [steps] * 2, steps).groups == 1
