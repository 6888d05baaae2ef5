"""Rows of benchmarks as text."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.tools import cli


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as aligned text."""
    lines = [("case", "quantity", "ours", "theirs", "ratio", "quartiles", "paper", "against")]
    for row in rows:
        theirs, quartiles = row["theirs"], row["spread"].get("ratio")
        lines.append(
            (
                row["case"],
                row["quantity"],
                figure(row["ours"], row["unit"]),
                "-" if theirs is None else figure(theirs, row["unit"]),
                "-" if row["ratio"] is None else f"{row['ratio']:,.3g}",
                "-" if quartiles is None else " to ".join(f"{q:,.3g}" for q in quartiles),
                "-" if "paper" not in row else f"{row['paper']:,g}",
                row["against"] or "-",
            )
        )
    return "\n".join(cli.aligned(lines, "<" * len(lines[0])))


def figure(value: float, unit: str) -> str:
    """A value with its unit; seconds by the thousand's prefix that fits."""
    if unit == "s":
        for scale, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if value >= scale or scale == 1e-6:
                return f"{value / scale:.3g} {name}"
    if unit == "fraction":
        return f"{value:.5f}"
    return f"{value:,.4g} {unit}" if value != int(value) else f"{int(value):,} {unit}"
