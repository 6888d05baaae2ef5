"""What makes a schedule legal, as `Schedule` has it: every schedule that breaks a law is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.algorithms import blelloch, hybrid, linear
from bppsa_cupy.plan.file.check_schedule import check_schedule
from bppsa_cupy.plan.schedule import Schedule

MV, MM = 0, 1


def is_legal(n, rows):
    """The laws, one row after the other, with the level of every segment there is."""
    levels, before = {}, 0
    for level, begin, split, end, kind, worker in rows:
        if not (0 <= begin < split < end <= n + 1 and kind == (MM if begin else MV)):
            return False
        if level < before or worker < 0 or (begin, end) in levels:
            return False
        for segment in ((begin, split), (split, end)):
            if segment[1] - segment[0] > 1 and levels.get(segment, level) >= level:
                return False
        levels[begin, end] = before = level
    return all((0, k) in levels for k in range(2, n + 1))


@st.composite
def edited(draw):
    """A legal schedule's rows with a field changed, a row left out, a row twice, or two rows changed over."""
    n = draw(st.integers(1, 6))
    made = draw(st.sampled_from([linear, blelloch, lambda n: hybrid(n, min(n - 1, 1))]))(n)
    rows = made.table.tolist()
    for _ in range(draw(st.integers(0, 2)) if rows else 0):
        row, other = (draw(st.integers(0, len(rows) - 1)) for _ in range(2))
        edit = draw(st.sampled_from(["field", "drop", "repeat", "swap"]))
        if edit == "field":
            rows[row][draw(st.integers(0, 5))] = draw(st.integers(-2, n + 3))
        elif edit == "drop" and len(rows) > 1:
            del rows[row]
        elif edit == "repeat":
            rows.insert(other, list(rows[row]))
        else:
            rows[row], rows[other] = rows[other], rows[row]
    return n, rows


@given(edited())
def test_a_schedule_is_taken_where_all_laws_hold(case):
    n, rows = case
    try:
        check_schedule(Schedule("linear", n, np.array(rows)))
    except PlanError:
        assert not is_legal(n, rows)
    else:
        assert is_legal(n, rows)


#: v(2) and v(3) of four matrices; a further row of level 2 that breaks a law, before the one of v(4).
START = [(0, 0, 1, 2, MV, 0), (1, 0, 2, 3, MV, 0)]
END = [(3, 0, 3, 4, MV, 0)]
SEGMENT = r"its segment is none of a scan over a_0, …, a_4"
ABSENT = "an operand is not there before its level"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ((2, -1, 0, 1, MM, 0), SEGMENT),
        ((2, 3, 3, 4, MM, 0), SEGMENT),
        ((2, 2, 4, 4, MM, 0), SEGMENT),
        ((2, 4, 5, 6, MM, 0), SEGMENT),
        ((2, 2, 3, 4, MV, 0), "its kind does not fit its segment"),
        ((0, 2, 3, 4, MM, 0), "levels must not decrease, nor workers be negative"),
        ((2, 2, 3, 4, MM, -1), "levels must not decrease, nor workers be negative"),
        ((2, 0, 1, 3, MV, 0), "its segment is there already"),
        ((2, 1, 2, 4, MM, 0), ABSENT),  # the right operand alone
        ((2, 2, 4, 5, MM, 0), ABSENT),  # the left one
        ((1, 0, 3, 4, MV, 0), ABSENT),  # made at this level
        ((2, 1, 2, 5, MM, 0), ABSENT),
    ],
)
def test_the_step_and_its_fault_are_named(row, words):
    with pytest.raises(PlanError, match=rf"schedule linear: .* is not legal: {words}"):
        check_schedule(Schedule("linear", 4, np.array([*START, row, *END])))


def test_what_is_not_computed_is_named():
    with pytest.raises(PlanError, match=r"schedule linear does not compute v\(4\)"):
        check_schedule(Schedule("linear", 4, np.array(START)))
    check_schedule(Schedule("linear", 4, np.array([*START, *END])))
