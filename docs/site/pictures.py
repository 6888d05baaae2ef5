"""Draw the pictures of README and docs that no command draws: `python docs/site/pictures.py`.

Reads docs/results and writes SVG files to docs/pictures. Every picture has a white ground for dark pages.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS, PICTURES = ROOT / "docs" / "results", ROOT / "docs" / "pictures"
INK, FAINT, BLUE, ORANGE, GREEN = "#333333", "#dddddd", "#3b76c4", "#d9730d", "#4aa564"


def load(name: str) -> dict[str, Any]:
    """A file of results."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def text(x: float, y: float, words: str, anchor: str = "start", color: str = INK, weight: int = 400) -> str:
    """Words at a place."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{color}" font-weight="{weight}">{words}</text>'


def box(x: float, y: float, width: float, height: float, color: str) -> str:
    """A filled rectangle."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}"/>'


def line(x1: float, y1: float, x2: float, y2: float, color: str = FAINT, arrow: bool = False) -> str:
    """A line, with an arrow head at its end where asked for."""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    head = ' marker-end="url(#arrow)"' if arrow else ""
    return f'<line {ends} stroke="{color}" stroke-width="1.5"{head}/>'


def picture(width: int, height: int, parts: list[str]) -> str:
    """A whole SVG file."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="14" role="img">'
    )
    arrow = (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>'
    )
    ground = f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>'
    return "\n".join([head, arrow, ground, *parts, "</svg>"]) + "\n"


def programs() -> str:
    """Speed-ups of PyTorch programs on one thread as bars on a logarithmic axis."""
    ending = ", 1 thread"
    rows = [r for r in load("programs")["rows"] if r["quantity"] == "step" and r["case"].endswith(ending)]
    rows.sort(key=lambda row: -row["ratio"])
    least, most = 0.7, 1.2 * max(row["ratio"] for row in rows)
    left, right, top, pitch = 410, 740, 62, 24

    def x(ratio: float) -> float:
        return left + (right - left) * math.log(ratio / least) / math.log(most / least)

    bottom = top + pitch * len(rows)
    parts = [
        text(
            20,
            26,
            "Training step of PyTorch programs on one thread: time unconverted / converted",
            weight=600,
        )
    ]
    for ratio in (one for one in (1, 2, 5, 10, 20) if one < most):
        parts.append(line(x(ratio), top - 8, x(ratio), bottom, INK if ratio == 1 else FAINT))
        parts.append(text(x(ratio), top - 14, f"{ratio:g}", "middle"))
    for number, row in enumerate(rows):
        y = top + pitch * number
        low, high = sorted((x(row["ratio"]), x(1)))
        color = GREEN if "the loop is replaced" in row["note"] else BLUE
        parts.append(text(left - 8, y + 14, row["case"].removesuffix(ending), "end"))
        parts.append(box(low, y + 3, max(high - low, 1.5), pitch - 8, color))
        parts.append(text(high + 6, y + 14, f"{row['ratio']:.2f}"))
    for place, (color, words) in enumerate(((BLUE, "one line added"), (GREEN, "loop over steps replaced"))):
        parts += [
            box(20 + 250 * place, bottom + 14, 14, 14, color),
            text(40 + 250 * place, bottom + 26, words),
        ]
    return picture(800, int(bottom + 44), parts)


def grid() -> str:
    """The grid of recurrent layers on a GPU as a heat map: rows are layers and batches, columns widths."""
    results = load("h200/steps_grid")
    against, quantity = "PyTorch", "step, captured"
    found = {
        r["case"]: r["ratio"] for r in results["rows"] if (r["quantity"], r["against"]) == (quantity, against)
    }
    widths, left, top, wide, high = (64, 128, 256, 512, 1024), 130, 84, 82, 30
    parts = [
        text(20, 26, "Recurrent layers on an NVIDIA H200, T = 1,000", weight=600),
        text(20, 48, f"training step: {against}, TF32 off / bppsa-cupy"),
    ]
    parts += [text(left + wide * (k + 0.5), top - 10, f"H = {h}", "middle") for k, h in enumerate(widths)]
    for number, (cell, batch) in enumerate((c, b) for c in ("RNN", "GRU", "LSTM") for b in (16, 64)):
        y = top + high * number + 6 * (number // 2)
        parts.append(text(left - 10, y + 20, f"{cell}, B = {batch}", "end"))
        for k, h in enumerate(widths):
            ratio = found.get(f"{cell} H={h} B={batch} T=1000")
            parts.append(box(left + wide * k, y, wide - 3, high - 3, shade(ratio)))
            words = "–" if ratio is None else f"{ratio:.2g}"
            parts.append(
                text(left + wide * (k + 0.5) - 1.5, y + 19, words, "middle", "#888" if ratio is None else INK)
            )
    bottom = top + high * 6 + 12
    parts.append(text(20, bottom + 22, "blue: bppsa-cupy is faster; orange: PyTorch is faster"))
    return picture(560, int(bottom + 36), parts)


def shade(ratio: float | None) -> str:
    """White at 1, blue above, orange below, on a logarithmic scale that ends at a factor of 5."""
    if ratio is None:
        return "#f3f3f3"
    part = min(abs(math.log(ratio)) / math.log(5), 1) * 0.75
    full = (59, 118, 196) if ratio > 1 else (232, 130, 30)
    return "#" + "".join(f"{round(255 + (c - 255) * part):02x}" for c in full)


def chunks() -> str:
    """Four chunks of four steps on the backward pass: reduce, scan, expand."""
    left, size, gap, top = 110, 34, 16, 66

    def x(chunk: int, step: float = 0) -> float:
        return left + chunk * (4 * size + gap) + step * size

    parts = [text(20, 26, "Backward pass over 16 time steps in 4 chunks", weight=600)]
    rows = {"reduce": top, "scan": top + 84, "expand": top + 168}
    for name, y in rows.items():
        parts.append(text(20, y + 20, name, weight=600))
    for chunk in range(4):
        for step in range(4):
            number = 4 * chunk + step + 1
            shown = BLUE if chunk else FAINT
            parts.append(box(x(chunk, step), rows["reduce"], size - 3, size - 3, shown))
            parts.append(box(x(chunk, step), rows["expand"], size - 3, size - 3, GREEN))
            color = "#ffffff" if chunk else "#888"
            parts.append(
                text(x(chunk, step) + size / 2 - 1.5, rows["reduce"] + 19, f"J{number}", "middle", color)
            )
            parts.append(
                text(x(chunk, step) + size / 2 - 1.5, rows["expand"] + 19, f"g{number}", "middle", "#fff")
            )
        parts.append(
            line(x(chunk, 3.8), rows["expand"] + 36, x(chunk, 0.1), rows["expand"] + 36, INK, arrow=True)
        )
        if chunk:
            middle = x(chunk, 2) - 1.5
            parts.append(line(middle, rows["reduce"] + 30, middle, rows["scan"] - 2, INK, arrow=True))
            parts.append(box(x(chunk, 1), rows["scan"], 2 * size - 3, size - 3, BLUE))
            parts.append(text(middle, rows["scan"] + 19, f"M{chunk + 1}", "middle", "#fff"))
        place = x(chunk, 4) + gap / 2 - 1.5
        parts.append(f'<circle cx="{place:.1f}" cy="{rows["scan"] + 14}" r="7" fill="{ORANGE}"/>')
        parts.append(line(place, rows["scan"] + 22, x(chunk, 3.6), rows["expand"] - 2, INK, arrow=True))
        if chunk:
            end = x(chunk) - gap / 2 + 7
            parts.append(line(x(chunk, 0.9), rows["scan"] + 14, end, rows["scan"] + 14, INK, arrow=True))
            parts.append(
                line(place - 8, rows["scan"] + 14, x(chunk, 3.05), rows["scan"] + 14, INK, arrow=True)
            )
    notes = (
        (BLUE, "product of a chunk's Jacobians"),
        (ORANGE, "gradient at a boundary"),
        (GREEN, "gradient of a state"),
    )
    y = rows["expand"] + 62
    for place, (color, words) in zip((20, 270, 470), notes, strict=True):
        parts += [box(place, y, 14, 14, color), text(place + 20, y + 12, words)]
    return picture(720, y + 32, parts)


def curves() -> str:
    """Figure 7: the loss over seconds, and the difference of losses to those of PyTorch over steps."""
    runs = load("figure7")["curves"]["float32"]
    colors = {"auto": BLUE, "blelloch": GREEN, "PyTorch": ORANGE}
    top, bottom, wide = 60, 240, 280

    def path(points: list[tuple[float, float]], color: str) -> str:
        ends = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        return f'<polyline points="{ends}" fill="none" stroke="{color}" stroke-width="2"/>'

    parts = [text(20, 26, "RNN on bitstreams, float32, 600 steps", weight=600)]
    for left, title, ticks, labels in (
        (60, "loss over seconds", (0, 5, 10), ("1.8", "2.0", "2.2")),
        (440, "relative difference to PyTorch over steps", (0, 200, 400, 600), ("1e-7", "1e-6", "1e-5")),
    ):
        parts.append(text(left + wide / 2, 50, title, "middle"))
        full = 15 if left == 60 else 600
        for tick in ticks:
            x = left + wide * tick / full
            parts += [line(x, top, x, bottom), text(x, bottom + 18, str(tick), "middle")]
        for label in labels:
            y = loss_height(float(label)) if left == 60 else difference_height(float(label))
            parts += [line(left, y, left + wide, y), text(left - 6, y + 5, label, "end")]
    reference = runs["PyTorch"]["losses"]
    for name, run in runs.items():
        every = len(reference) // len(run["seconds"])
        means = [sum(run["losses"][k : k + every]) / every for k in range(0, len(reference), every)]
        points = [(60 + wide * s / 15, loss_height(m)) for s, m in zip(run["seconds"], means, strict=True)]
        parts.append(path(points, colors[name]))
        if name != "PyTorch":
            ratios = [abs(a - b) / b for a, b in zip(run["losses"], reference, strict=True)]
            largest = [max(ratios[: k + 1]) for k in range(len(ratios))]
            points = [(440 + wide * k / 600, difference_height(d)) for k, d in enumerate(largest)]
            parts.append(path(points, colors[name]))
    for place, (name, color) in enumerate(colors.items()):
        parts += [
            box(60 + 130 * place, bottom + 32, 14, 14, color),
            text(80 + 130 * place, bottom + 44, name),
        ]
    parts.append(text(450, bottom + 44, "(right: largest so far)"))
    return picture(750, bottom + 60, parts)


def loss_height(loss: float) -> float:
    """Where a loss lies in the picture of curves."""
    return 240 - 180 * (loss - 1.8) / 0.6


def difference_height(difference: float) -> float:
    """Where a relative difference lies in the picture of curves."""
    return 240 - 180 * math.log10(max(difference, 3e-8) / 3e-8) / math.log10(1e-4 / 3e-8)


def architecture() -> str:
    """The folders of the package in the order of imports."""
    rows = (
        ("users", ORANGE, ("tools: commands", "torch", "jax", "your program")),
        ("training", GREEN, ("pipeline", "training", "models, data", "distributed")),
        ("networks", GREEN, ("network", "products", "functional")),
        ("planner and scan", BLUE, ("scan", "plan")),
        ("mathematics", BLUE, ("layers", "jacobians", "records", "timescan")),
        ("machine", INK, ("devices", "cells", "raw_kernels", "system")),
    )
    left, right, top, high = 160, 720, 20, 44
    parts = []
    for number, (name, color, folders) in enumerate(rows):
        y = top + high * number
        wide = (right - left) / len(folders)
        parts.append(text(left - 12, y + 23, name, "end", weight=600))
        for k, folder in enumerate(folders):
            parts.append(box(left + wide * k, y, wide - 6, high - 10, color))
            parts.append(text(left + wide * (k + 0.5) - 3, y + 22, folder, "middle", "#ffffff"))
    return picture(740, top + high * len(rows) + 10, parts)


def main() -> None:
    """Write all pictures."""
    PICTURES.mkdir(exist_ok=True)
    for draw in (programs, grid, chunks, curves, architecture):
        (PICTURES / f"{draw.__name__}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
