"""Lines of text for a terminal: columns that are aligned, and texts that go on within 100 columns."""

from hypothesis import given
from hypothesis import strategies as st

from bppsa_cupy.tools.lines import COLUMNS, aligned, fact

CELL = st.text("ab1 ", max_size=9).map(str.strip)
WORDS = st.lists(st.text("xyz", min_size=1, max_size=19), max_size=40)


@given(st.data(), st.integers(1, 4))
def test_no_line_is_wider_and_no_word_is_lost(data, columns):
    """Every word of the last column stands in the lines of its row, in order, behind the other columns."""
    rows = [data.draw(st.lists(CELL, min_size=columns, max_size=columns)) for _ in range(3)]
    texts = [" ".join(data.draw(WORDS)) for _ in rows]
    cells = [[*row, text] for row, text in zip(rows, texts, strict=True)]
    before = 2 + sum(max(len(row[k]) for row in rows) + 2 for k in range(columns))
    for (*row, text), told in zip(cells, aligned(cells, ">" * columns + "<", indent=2), strict=True):
        first, *rest = told.splitlines() or [""]
        assert max(map(len, [first, *rest])) <= COLUMNS
        assert first[:before].split() == " ".join(row).split()
        assert not "".join(line[:before] for line in rest).strip()
        assert " ".join(line[before:] for line in [first, *rest]).split() == text.split()


def test_columns_of_numbers():
    assert aligned([("a", "bb"), ("ccc", "1")], "<>") == ["a    bb", "ccc   1"]
    assert aligned([("", ""), ("x", "")], "<<") == ["", "x"]


def test_a_fact_goes_on_behind_its_name():
    first, *rest = fact("classes", ", ".join(map(str, range(100)))).splitlines()
    assert first.startswith("classes     0, 1, 2") and max(map(len, [first, *rest])) <= COLUMNS
    assert len(rest) == 4 and all(line.startswith(12 * " ") and line[12] != " " for line in rest)
