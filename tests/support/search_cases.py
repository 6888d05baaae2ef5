"""Tables of costs to search, and all schedules of a chain."""

import numpy as np
from hypothesis import strategies as st

from bppsa_cupy.plan.algorithms import from_splits
from bppsa_cupy.plan.cost import list_schedule
from bppsa_cupy.plan.search.segment_costs import SegmentCosts


class Table:
    """Costs of a chain whose segments are all different, from dictionaries."""

    def __init__(self, n, draw):
        self.n = n
        segments = [(i, j) for i in range(1, n) for j in range(i + 1, n + 1)]
        self.mv = {segment: draw() for segment in segments}
        self.mm = {(i, k, j): draw() for i, j in segments for k in range(i + 1, j)}
        classes = np.full((n + 1, n + 1), -1, np.int32)
        mm = np.full((len(segments), len(segments)), np.inf)
        for number, segment in enumerate(segments):
            classes[segment] = number
        for (i, k, j), seconds in self.mm.items():
            mm[classes[i, k], classes[k, j]] = seconds
        mv = np.array([self.mv[segment] for segment in segments], float)
        self.costs = SegmentCosts(classes, mm, mv)

    def seconds(self, schedule):
        return [
            self.mv[s.right] if s.kind == "mv" else self.mm[s.begin, s.split, s.end] for s in schedule.steps
        ]

    def makespan(self, schedule, workers):
        return list_schedule(schedule, self.seconds(schedule), workers)[1].seconds

    def critical_path(self, schedule):
        """By recursion over what the steps need."""
        ends = {}
        for step, seconds in zip(schedule.steps, self.seconds(schedule), strict=True):
            ends[step.out] = max(ends.get(step.left, 0.0), ends.get(step.right, 0.0)) + seconds
        return max(ends.values(), default=0.0)


@st.composite
def tables(draw, least=0, most=6):
    n = draw(st.integers(least, most))
    random = draw(st.randoms(use_true_random=False))
    kind = draw(st.sampled_from(["integers", "reals", "ties", "nothing"]))
    one = {
        "integers": lambda: random.randint(1, 100),
        # Thousandths, so that two schedules are equally long or clearly not.
        "reals": lambda: round(random.random() ** random.choice([1, 8]), 3),
        "ties": lambda: random.choice([1, 1, 2, 8]),
        "nothing": lambda: random.choice([0, 1]),
    }[kind]
    return Table(n, one)


def all_schedules(n, **order):
    """Every choice of a split for every segment that v(2), …, v(n) need, by plain recursion."""

    def extend(pending, chosen):
        if not pending:
            yield from_splits("hybrid", n, chosen, **order)
            return
        segment = max(pending, key=lambda s: (s[0] == 0, s[1] - s[0], s))
        for split in range(segment[0] + 1, segment[1]):
            operands = {(segment[0], split), (split, segment[1])}
            longer = {s for s in operands if s[1] - s[0] > 1 and s not in chosen}
            yield from extend((pending - {segment}) | longer, {**chosen, segment: split})

    yield from extend(frozenset((0, j) for j in range(2, n + 1)), {})
