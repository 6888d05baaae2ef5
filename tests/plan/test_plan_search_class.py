"""The class of schedules that a search takes the best of, member by member (`search.search` describes it)."""

import re
from collections import Counter
from itertools import cycle

import numpy as np
import pytest

from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan import Chain, Element
from bppsa_cupy.plan.algorithms import every_hybrid
from bppsa_cupy.plan.search.candidates import members, segment_sets
from bppsa_cupy.plan.search.segment_costs import SegmentCosts, is_searched, searched_segments

N = 30
SECONDS = [3, 5, 7, 100, 4, 11]


def chain_costs(n, one, order=lambda begin, end: begin):
    """Costs of n matrices whose segments are all different, their classes in this order."""
    segments = [(i, j) for i in range(1, n) for j in range(i + 1, n + 1)]
    segments.sort(key=lambda segment: order(*segment))
    classes = np.full((n + 1, n + 1), -1, np.int32)
    for number, segment in enumerate(segments):
        classes[segment] = number
    mm = np.full((len(segments),) * 2, np.inf)
    for (i, j), k in ((segment, k) for segment in segments for k in range(segment[0] + 1, segment[1])):
        mm[classes[i, k], classes[k, j]] = one()
    mv = np.array([one() for _ in segments], float)
    return SegmentCosts(classes, mm, mv)


def names_of(found):
    """What sets there are, and how many deadlines each has."""
    return Counter(re.sub(", within .* of the shortest path$", "", one.name) for one in found)


def made_of(candidate):
    """The matrices of more than one element that it makes."""
    return [(i, j) for i, _, j in candidate.splits.tolist() if i]


@pytest.fixture(scope="module")
def found():
    return list(members(chain_costs(N, cycle(SECONDS).__next__)))


def test_every_set_is_there(found):
    hybrids = every_hybrid(N)
    assert [one.levels for one in found[: len(hybrids)]] == [one.levels for one in hybrids]
    sizes = sorted({int(2 * (N / 2) ** (k / 11)) for k in range(11)})
    assert sizes[0] == 2 and N not in sizes
    sets = [
        "all segments",
        *(f"blocks of {size} from a_{N * k // 8} on" for size in sizes for k in range(8)),
    ]
    assert names_of(found[len(hybrids) :]) == dict.fromkeys(sets, 10)


def test_sets_are_of_the_segments_that_their_names_say():
    """Of classes in any order."""
    costs = chain_costs(20, cycle(SECONDS).__next__, order=lambda begin, end: (end - begin == 1, end, begin))
    for name, classes in segment_sets(costs):
        words = name.split()

        def holds(begin, end, words=words):
            if end == begin + 1 or words[0] == "all":
                return True
            size, first = int(words[2]), int(words[4].removeprefix("a_"))
            return begin >= first and (begin - first) // size == (end - 1 - first) // size

        expected = np.full_like(classes, -1)
        for begin, end in np.argwhere(costs.classes >= 0).tolist():
            expected[begin, end] = costs.classes[begin, end] if holds(begin, end) else -1
        np.testing.assert_array_equal(classes, expected, name)


def test_each_set_holds_what_its_name_says(found):
    starts = 0
    for one in found:
        if match := re.match(r"blocks of (\d+) from a_(\d+) on", one.name):
            size, first = map(int, match.groups())
            for begin, end in made_of(one):
                assert begin >= first and (begin - first) // size == (end - 1 - first) // size
                starts += begin == first
    assert starts


def test_operands_come_before_their_readers(found):
    for one in found:
        assert (one.operands < np.arange(len(one.operands))[:, None]).all()
        segments = one.splits[:, [0, 2]].tolist()
        for (begin, split, end), operands in zip(one.splits.tolist(), one.operands.tolist(), strict=True):
            for segment, at in zip(([begin, split], [split, end]), operands, strict=True):
                assert at == -1 if segment[1] - segment[0] == 1 else segments[at] == segment


@pytest.mark.parametrize(("n", "every"), [(6, True), (7, False)])
def test_all_schedules_of_a_chain_of_six(n, every):
    names = names_of(members(chain_costs(n, lambda: 1)))
    assert names["one of all schedules"] == (1284 if every else 0)


def test_deadlines_run_from_the_shortest_path_to_the_serial_scan(found):
    serial = next(one for one in found if one.name == "linear").seconds.sum()
    every = [one for one in found if one.name.startswith("all segments")]
    shortest = every[0].critical_path
    assert shortest == min(one.critical_path for one in found) < serial
    for turn, one in enumerate(every):
        factor = (serial / shortest) ** (turn / 10)
        assert one.name == f"all segments, within {factor:.3g} of the shortest path"
        assert one.critical_path <= factor * shortest * (1 + 1e-9)


def test_one_deadline_where_nothing_is_shorter_than_the_serial_scan():
    costs = chain_costs(12, lambda: 1)
    costs.mm[np.isfinite(costs.mm)] = 1000
    found = list(members(costs))
    assert names_of(found[len(every_hybrid(12)) :])["all segments"] == 1
    nothing = list(members(chain_costs(12, lambda: 0)))
    assert set(names_of(nothing[len(every_hybrid(12)) :]).values()) == {1}


@pytest.mark.parametrize("n", [0, 1, 2, 3, 63, 64])
def test_every_segment_of_a_short_chain_is_searched(n):
    patterns = [Pattern((8, 8), np.arange(9), np.full(8, k % 8)) for k in range(n)]
    chain = Chain(tuple(Element("J", pattern, k % 3 == 0) for k, pattern in enumerate(patterns)))
    expected = [(i, j) for i in range(1, n + 1) for j in range(i + 1, n + 2) if j <= n or j == i + 1]
    assert sorted(map(tuple, searched_segments(chain).tolist())) == expected


@pytest.mark.parametrize(("different", "every"), [(8, True), (9, False)])
def test_long_chains_of_few_different_elements_are_searched_over_every_segment(different, every):
    patterns = [Pattern((8, 8), np.arange(9), np.full(8, k % 8)) for k in range(8)]
    elements = [Element("J", patterns[k % 8], different == 9 and k == 0) for k in range(72)]
    assert len({(e.pattern.digest, e.shared) for e in elements}) == different
    segments = searched_segments(Chain(tuple(elements)))
    assert (len(segments) == 72 + 71 * 70 // 2) == every


def test_chains_of_up_to_1024_elements_are_searched():
    element = Element("J", Pattern.diagonal(1), True)
    assert [is_searched(Chain((element,) * n)) for n in (1023, 1024, 1025)] == [True, True, False]
