"""Tables of what `bppsa-plan` prints."""

from __future__ import annotations

from collections.abc import Sequence

from bppsa_cupy.tools.lines import aligned


def print_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], alignment: str) -> None:
    """Aligned columns; `alignment` has a letter a column, as format specifications have."""
    print("\n".join(aligned([head, *rows], alignment, indent=2)))
