"""Partitions, schedules and placements to test with."""

import numpy as np
from hypothesis import strategies as st

from bppsa_cupy.plan import Partition, Schedule, place
from bppsa_cupy.plan.schedule import blelloch, hybrid, linear, up_sweep_levels, with_input_gradient


def equal_parts(items, ranks):
    """Parts whose sizes differ by at most 1."""
    return Partition(tuple(items * rank // ranks for rank in range(ranks + 1)))


@st.composite
def partitions(draw, items, most_ranks=6):
    """Contiguous parts anywhere, empty ones among them."""
    ranks = draw(st.integers(1, most_ranks))
    cuts = draw(st.lists(st.integers(0, items), min_size=ranks - 1, max_size=ranks - 1))
    return Partition((0, *sorted(cuts), items))


def from_splits(n, split_of):
    """The schedule that computes v(2), …, v(n) and what they need, each as early as it can be."""
    made = {(k, k + 1): (-1, None) for k in range(n + 1)}

    def make(begin, end):
        if (begin, end) not in made:
            split = split_of(begin, end)
            made[begin, end] = 1 + max(make(begin, split), make(split, end)), split
        return made[begin, end][0]

    for k in range(2, n + 1):
        make(0, k)
    rows = [(level, b, split, e, int(b > 0), 0) for (b, e), (level, split) in made.items() if split]
    return Schedule("hybrid", n, np.array(sorted(rows), np.int64))


@st.composite
def schedules(draw, n):
    """Of every kind: the serial scan, algorithm 1, every hybrid, and given splits anywhere."""
    kind = draw(st.sampled_from(["linear", "blelloch", "hybrid", "computed"]))
    if kind == "computed":
        made = from_splits(n, lambda begin, end: draw(st.integers(begin + 1, end - 1)))
    elif kind == "hybrid":
        made = hybrid(n, draw(st.integers(0, up_sweep_levels(n))))
    else:
        made = linear(n) if kind == "linear" else blelloch(n)
    return with_input_gradient(made) if draw(st.booleans()) else made


@st.composite
def placements(draw, most=20, most_ranks=6, schedule=None):
    """A schedule over ranks; the owners rise along the chain, as in `bp.scan`, or fall, as in a network."""
    made = schedule or draw(schedules(draw(st.integers(0, most))))
    partition = draw(partitions(made.n, most_ranks))
    owners = partition.owners if draw(st.booleans()) else partition.owners[::-1]
    return place(made, owners, partition.ranks)
