"""Lines of text for a terminal of 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

COLUMNS = 100


def aligned(rows: Sequence[Sequence[str]], alignment: str, *, indent: int = 0) -> list[str]:
    """Rows as texts of aligned columns; `alignment` has a letter a column, as format specifications have. The
    last one, if of words (`<`), goes on in lines of its own where a line would be longer than `COLUMNS`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    before = indent + sum(widths[:-1]) + 2 * (len(widths) - 1)
    if alignment[-1] == "<" and before + widths[-1] > COLUMNS:
        widths[-1] = max(COLUMNS - before, 12)
    texts = []
    for row in rows:
        last = textwrap.wrap(row[-1], widths[-1]) if len(row[-1]) > widths[-1] else [row[-1]]
        cells = zip([*row[:-1], last[0]], alignment, widths, strict=True)
        line = " " * indent + "  ".join(f"{cell:{side}{width}}" for cell, side, width in cells)
        texts.append("\n".join([line.rstrip(), *(" " * before + words for words in last[1:])]))
    return texts


def fact(name: str, text: str) -> str:
    """A line "name        text"; a long text goes on in further lines, after the name."""
    return textwrap.fill(text, COLUMNS, initial_indent=f"{name:12}", subsequent_indent=12 * " ")


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], alignment: str) -> None:
    """Print aligned columns; `alignment` has a letter a column, as format specifications have."""
    print("\n".join(aligned([head, *rows], alignment, indent=2)))
