"""Numbers and tables of what `bppsa-plan` tells."""

from __future__ import annotations

from collections.abc import Sequence

from bppsa_cupy.tools import cli


def print_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], alignment: str) -> None:
    """Aligned columns; `alignment` has a letter a column, as format specifications have."""
    for line in cli.aligned([head, *rows], alignment):
        print(f"  {line}".rstrip())


def quantity(value: float) -> str:
    """A number in three digits and a decimal prefix: "28.8 M"."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:g} "
