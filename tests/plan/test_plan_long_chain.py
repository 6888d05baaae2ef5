"""Chains of many elements: equal ones are planned, stored and read as one."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_cases import assert_equal_plans, random_chain

from bppsa_cupy.csr import Pattern
from bppsa_cupy.jacobians.cell import CellJacobian
from bppsa_cupy.plan import Chain, Element, Plan
from bppsa_cupy.plan.sizes import ChainSizes
from bppsa_cupy.plan.sizes.equal_segments import EqualSegments
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.scan.primitive import make_chain, plan_scan


def test_equal_elements_are_stored_once(tmp_path):
    """An RNN of 30000 steps: the file and its schedules stay small, and say the same when they are read."""
    n = 30000
    plan = plan_scan(make_chain([(CellJacobian(FORMS["rnn_tanh"], 20).pattern, False)] * n), device="host")
    assert plan.schedules == ("linear", "blelloch", "hybrid") and len(plan.chains[0].products) == 1
    plan.save(tmp_path / "p.h5")
    assert (tmp_path / "p.h5").stat().st_size < 1 << 20
    loaded = Plan.load(tmp_path / "p.h5")
    assert_equal_plans(plan, loaded)
    assert [e.name for e in loaded.chains[0].chain.elements[:: n - 1]] == ["J_1", f"J_{n}"]


def test_alternating_elements_are_stored_once(tmp_path):
    plan = plan_scan(
        make_chain([(Pattern.dense(3, 3), False), (Pattern.diagonal(3), True)] * 2000), device="host"
    )
    plan.save(tmp_path / "p.h5")
    assert (tmp_path / "p.h5").stat().st_size < 1 << 18
    assert_equal_plans(plan, Plan.load(tmp_path / "p.h5"))


def chain_of(letters):
    """A chain of 2×2 patterns, one a letter; "d" is the diagonal."""
    made = {"d": Pattern.diagonal(2), "a": Pattern.dense(2, 2), "b": Pattern((2, 2), [0, 1, 3], [0, 0, 1])}
    return Chain(tuple(Element(letter, made[letter], letter == "b") for letter in letters))


def without_repetition(letters):
    """What makes a product's pattern: no diagonals, and a dense matrix once where it follows itself."""
    return re.sub("a+", "a", letters.replace("d", ""))


@given(st.text("abd", max_size=12))
def test_a_code_is_where_a_stretch_of_patterns_is_met_first(letters):
    chain = chain_of(letters)
    equal, n = EqualSegments(chain), len(letters)
    segments = [(i, j) for i in range(1, n + 1) for j in range(i + 1, n + 2)]
    stripped = without_repetition(letters)
    expected = []
    for i, j in segments:
        stretch = without_repetition(letters[i - 1 : j - 1])
        first = stripped.find(stretch)
        expected.append((first, first + len(stretch)) if stretch else -3)
    codes = [equal.code(segment) for segment in segments]
    assert [equal.stretch(code) if code >= 0 else code for code in codes] == expected
    assert equal.codes(np.array(segments, np.int64).reshape(-1, 2)).tolist() == codes


@pytest.mark.parametrize("seed", range(4))
def test_sizes_at_once_are_those_one_by_one(seed):
    chain = random_chain(9, seed)
    counts = ChainSizes(chain)
    segments = [(i, j) for i in range(10) for j in range(i + 1, 11)]
    sizes = counts.values_sizes(np.array(segments), 3)
    assert sizes.tolist() == [counts.values_size(segment, 3) for segment in segments]
    assert chain.all_shared(np.array(segments)).tolist() == [
        i > 0 and all(element.shared for element in chain.elements[i - 1 : j - 1]) for i, j in segments
    ]
