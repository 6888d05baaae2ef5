"""What the ways back over time cost on several ranks, against ranks played one event after another."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from timescan_cases import CELLS

from bppsa_cupy.distributed.time_cost import best_chunk, predicted_seconds, split_steps
from bppsa_cupy.plan.cost_model import Link
from bppsa_cupy.processors.models import H200, MODELS, HostModel
from bppsa_cupy.timescan import WalkSize

#: A second a multiply-add, a message of one, and a byte of a message.
COUNTING = HostModel("one", 1, 0.0, 0.0, (1.0, 1.0), 0.0, 1.0, 1, 1.0, 1.0)
LINK = Link(1.0, 1.0)
#: Two processes of one host.
NEAR = Link(2e-5, 4e9)


def played(size, ranks, chunk):
    """When the last rank ends, relayed and by chunks: a multiply-add a second, by the sizes of the matrices
    alone, rank after rank and chunk after chunk."""
    B, H = size.batch, size.units
    starts, free, sent = split_steps(size.steps, ranks, chunk), 0.0, 0.0
    for start, stop in pairwise(starts):
        free = sent + (stop - start) * B * size.cell.gates * H**2
        sent = free + (1 + 4 * B * H)
    ends = []
    for start, stop in pairwise(starts):
        chunks = range(start, stop, chunk)
        reduced = sum(chunk * B * size.cell.gates * H * H * (H + 8) for begin in chunks if begin > 0)
        expanded = max(len(chunks), 1) * -(-(stop - start) // len(chunks)) * B * size.cell.gates * H**2
        ends.append((reduced, expanded))
    maps = -(-size.steps // chunk) - 1
    holders = len(starts) - 1
    travel = 1 + maps * B * H * (4 * H + 4) * (holders - 1) / holders if holders > 1 else 0.0
    scanned = max(r for r, _ in ends) + travel + maps * H**2 + max(e for _, e in ends)
    return free, scanned


@pytest.mark.parametrize("cell", ["tanh", "gru"])
def test_the_first_chunk_of_all_ranks_alone_is_not_reduced(cell):
    for steps in (1, 7, 60, 61):
        size = WalkSize(CELLS[cell], steps, 4, 3, itemsize=4)
        for ranks in (1, 2, 3, 8):
            for chunk in (1, 5, 30, 100):
                held = np.diff(split_steps(steps, ranks, chunk)).tolist()
                expected = played(size, ranks, chunk)
                assert predicted_seconds(COUNTING, LINK, size, held, chunk) == pytest.approx(expected)


def test_ranks_with_a_chunk_each_all_reduce_but_the_first():
    """The 19 to 100 times slower way is not the one that is predicted to cost nothing."""
    for steps, hidden in ((500, 20), (5000, 64), (30000, 20)):
        size = WalkSize(CELLS["tanh"], steps, 16, hidden, itemsize=4)
        relayed, scanned = predicted_seconds(MODELS["host"], NEAR, size, [steps // 2] * 2, steps // 2)
        alone = MODELS["host"].reduce_seconds(replace(size, steps=steps // 2), steps // 2, 0)
        assert scanned > alone > 5 * relayed


@pytest.mark.parametrize("model", [MODELS["host"], H200], ids=["host", "cuda"])
@pytest.mark.parametrize("hidden", [20, 64])
@pytest.mark.parametrize("steps", [500, 5000, 30000])
def test_the_quicker_way_by_the_chosen_chunk_is_within_a_tenth_of_the_best_by_any(model, hidden, steps):
    size = WalkSize(CELLS["tanh"], steps, 16, hidden, itemsize=4)
    for ranks in (1, 2, 4, 16, 64, 256, 1024):

        def quicker(chunk, ranks=ranks):
            held = np.diff(split_steps(steps, ranks, chunk)).tolist()
            return min(predicted_seconds(model, NEAR, size, held, chunk))

        chunk = best_chunk(model, NEAR, size, ranks)
        assert chunk <= -(-steps // 2)  # two ranks have steps, where there are two
        every = {-(-steps // chunks) for chunks in range(2, 1500)} | set(range(1, steps // 2, steps // 500))
        assert quicker(chunk) <= 1.1 * min(map(quicker, every))


def test_all_ranks_have_steps_where_walks_take_long():
    size = WalkSize(CELLS["tanh"], 1000, 256, 512, itemsize=4)
    for ranks in (2, 3, 64):
        chunk = best_chunk(MODELS["host"], NEAR, size, ranks)
        assert len(split_steps(1000, ranks, chunk)) - 1 == ranks
    assert best_chunk(COUNTING, LINK, replace(size, steps=1), 4) == 1


def test_the_table_of_the_page_is_what_is_predicted():
    page = (Path(__file__).parents[2] / "docs" / "ranks.md").read_text(encoding="utf-8")
    header, _, *lines = page[page.index("| T | H | p = 1 |") :].partition("\n\n")[0].splitlines()
    numbers = [int(text.replace("p = ", "").replace(",", "")) for text in header.strip("| ").split(" | ")[2:]]
    assert len(lines) == 6
    for line in lines:
        steps, hidden, *told = [float(text.replace(",", "")) for text in line.strip("| ").split(" | ")]
        size = WalkSize(CELLS["tanh"], int(steps), 16, int(hidden), itemsize=4)
        for ranks, milliseconds in zip(numbers, told, strict=True):
            chunk = best_chunk(MODELS["host"], NEAR, size, ranks)
            held = np.diff(split_steps(int(steps), ranks, chunk)).tolist()
            predicted = min(predicted_seconds(MODELS["host"], NEAR, size, held, chunk))
            assert milliseconds == pytest.approx(1e3 * predicted, rel=5e-3)
