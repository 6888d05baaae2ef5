"""Rows of benchmarks as text."""

from __future__ import annotations

import math
from typing import Any

from bppsa_cupy.system.units import quantity
from bppsa_cupy.tools.lines import aligned

HEAD = ("quantity", "ours", "theirs", "ratio", "quartiles", "paper", "against")


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as aligned text, each case under its name; what no row has takes no column."""
    lines = [_line(row) for row in rows]
    used = [k for k in range(len(HEAD)) if any(line[k] for line in lines)]
    cells = [[line[k] or "-" for k in used] for line in [HEAD, *lines]]
    head, *texts = aligned(cells, "<" * len(used), indent=2)
    result, case = [head], None
    for row, text in zip(rows, texts, strict=True):
        if row["case"] != case:
            case = row["case"]
            result.append(case)
        result.append(text)
    return "\n".join([*result, *_means(rows)])


def _means(rows: list[dict[str, Any]]) -> list[str]:
    """The geometric mean and the worst of the ratios against each rival, where there are several cases."""
    groups: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for row in rows:
        if row["ratio"] is not None and row["unit"] == "s":
            rival = row["against"].partition(",")[0]
            groups.setdefault((row["quantity"], rival), []).append((row["ratio"], row["case"]))
    lines = [("quantity", "against", "cases", "geometric mean", "worst", "")]
    for (name, rival), ratios in groups.items():
        if len(ratios) > 2:
            mean = math.exp(sum(math.log(ratio) for ratio, _ in ratios) / len(ratios))
            worst, case = min(ratios)
            lines.append((name, rival, str(len(ratios)), digits(mean, 3), digits(worst, 3), case))
    return ["", *aligned(lines, "<<>>><")] if len(lines) > 1 else []


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    """A row's cells, by the columns of `HEAD`; what it does not have is empty."""
    theirs, ratio, quartiles = row["theirs"], row["ratio"], row["spread"].get("ratio", ())
    return (
        row["quantity"],
        figure(row["ours"], row["unit"]),
        "" if theirs is None else figure(theirs, row["unit"]),
        "" if ratio is None else digits(ratio, 3),
        " to ".join(digits(quartile, 3) for quartile in quartiles),
        figure(row["paper"], row["unit"] if row["unit"] == "fraction" else "") if "paper" in row else "",
        row["against"] or "",
    )


def figure(value: float, unit: str) -> str:
    """A value in at most four significant digits, with its unit; seconds by the thousand's prefix that fits,
    a fraction near 1 by what it lacks."""
    if unit == "s":
        for scale, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if value >= scale or scale == 1e-6:
                return f"{value / scale:.3g} {name}"
    if unit == "entries":
        return quantity(value).rstrip()
    if unit == "fraction":
        return f"1 - {digits(1 - value, 3)}" if 0.99 < value < 1 else digits(value, 4)
    return f"{digits(value, 4)} {unit}".rstrip()


def digits(value: float, count: int) -> str:
    """A number in so many significant digits; in three: "0.822", "18.5", "3,060", "102,000"."""
    text = f"{value:.{count}g}"
    return f"{float(text):,.0f}" if abs(float(text)) >= 10 ** (count - 1) else text
