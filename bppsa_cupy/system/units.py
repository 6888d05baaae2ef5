"""Numbers as text: decimal prefixes, bytes, and counts of things."""

from __future__ import annotations


def quantity(value: float) -> str:
    """A number in three digits and a decimal prefix: "28.8 M"."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:g} "


def in_bytes(count: int) -> str:
    """A number of bytes: "640 B", "28.8 kB"."""
    return f"{quantity(count)}B"


def counted(count: int, thing: str, things: str | None = None) -> str:
    """How many of a thing: "1 chain", "2 chains", "1,000 chains"; `things` is its plural, where that is not
    its name and an s."""
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"
