"""What the page shows of a part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bppsa_cupy.tools.benchmarks.tables import figure
from bppsa_cupy.tools.pictures.svg import Panel

#: The words of a verdict; where some of several numbers are better, it says how many.
BETTER, WORSE, SAME, INCOMPARABLE = "better", "worse", "the same", "cannot be compared"

#: Results by the names of runs; those that are not finished are not in it.
Results = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A table: what it holds, its heads, rows of texts. The first column names the row."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Shown:
    """Panels, tables, how ours compares with the paper's in a word or some, and a sentence or some of it."""

    verdict: str
    sentence: str
    panels: Sequence[Panel] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Part:
    """A table or figure of the paper.

    name     of its place in the page, and in the paper
    about    what the paper shows there
    cells    the runs it is made of
    show     of the results that there are, at least one
    """

    name: str
    title: str
    about: str
    cells: Sequence[str]
    show: Callable[[Results], Shown]

    @property
    def key(self) -> str:
        """The name as an id: "figure-5"."""
        return self.name.lower().replace(" ", "-")


def compared(ratios: Sequence[float], papers: Sequence[float]) -> str:
    """The words for our ratios beside the paper's, row by row: larger is better."""
    return in_words([ours >= theirs for ours, theirs in zip(ratios, papers, strict=True)])


def in_words(better: Sequence[bool]) -> str:
    """The words for several numbers of which some are better: "better in 2 of 5"."""
    if all(better) or not any(better):
        return BETTER if all(better) else WORSE
    return f"better in {sum(better)} of {len(better)}"


def span(values: Sequence[float]) -> str:
    """The least and the most of some ratios: "2.1 to 30 times"."""
    low, high = (ratio(value) for value in (min(values), max(values)))
    return f"{low} times" if low == high else f"{low} to {high} times"


def ratio(value: float) -> str:
    """A ratio to three digits: "2.75", "108", "8,300"."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def seconds(value: float) -> str:
    """Seconds with their unit."""
    return figure(value, "s")
