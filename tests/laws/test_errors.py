"""Messages of errors: of a bounded length, whatever a file or an argument holds; causes in one line."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

import bppsa_cupy as bp
from bppsa_cupy.errors import LONGEST


@given(st.text(max_size=30), st.integers(0, 10_000), st.text(max_size=30))
def test_a_message_keeps_beginning_and_end_and_is_bounded(begin, middle, end):
    text = begin + "[" * middle + end
    for error in (bp.BppsaError(text), bp.PlanError(text), bp.ShapeError(text)):
        said = str(error)
        assert len(said) <= LONGEST
        assert said == text or (said.startswith(begin) and said.endswith(end) and f"({len(text)} ch" in said)


def test_errors_are_copied_whole():
    for error in (bp.DataError("x" * 5000), bp.BppsaError()):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error) and str(copy) == str(error)
