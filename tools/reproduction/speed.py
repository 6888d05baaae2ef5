"""Tables 4 to 6 and figures 8 and 9: recurrent networks against PyTorch, by length and by batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bppsa_cupy.tools.benchmarks.sequences import batch_case, group_case, length_case
from bppsa_cupy.tools.paper import (
    BITSTREAMS,
    CLIPS,
    FIGURE8_BACKWARD,
    FIGURE8_OVERALL,
    FIGURE9_BACKWARD,
    FIGURE9_OVERALL,
    SETS,
    TABLE4,
    TABLE5,
    TABLE6,
    Epoch,
)
from bppsa_cupy.tools.pictures.svg import OURS, PAPER, SCAN, THEIRS, Panel
from bppsa_cupy.tools.reproduction.shown import Results, Shown, Table, compared, ratio, span

#: Rows of a table by the name of their run: what a row is called, where it lies on an axis, the paper's.
Rows = Mapping[str, tuple[str, float, Epoch]]
BY_LENGTH: Rows = {f"rnn {length_case(T)}": (f"{T:,}", T, epoch) for T, epoch in TABLE4.items()}
BY_BATCH: Rows = {f"rnn {batch_case(B)}": (f"1/{B}", 1 / B, epoch) for B, epoch in TABLE5.items()}
BY_GROUP: Rows = {
    f"gru {group_case(*group)}": (f"{group[0]}, B = {group[1]}", 0.0, epoch)
    for group, epoch in TABLE6.items()
}
#: Colours and names of the sides of a run.
SIDES = {"theirs": (THEIRS, "PyTorch"), "scan": (SCAN, "by scan"), "ours": (OURS, "ours")}


def _where(results: Results) -> str:
    """What can be compared of times on different machines."""
    rivals = " and ".join(sorted({found["against"] for found in results.values()}))
    return (
        "The seconds cannot be compared: the paper's are of a V100 and hold optimizer and data, ours are "
        "of this "
        f"machine without them. The ratios can, with care: the rival there is cuDNN, here {rivals}."
    )


def table4(results: Results) -> Shown:
    """Seconds of an epoch by T."""
    return _epochs(results, BY_LENGTH, "T, B = 16", BITSTREAMS)


def table5(results: Results) -> Shown:
    """Seconds of an epoch by B."""
    return _epochs(results, BY_BATCH, "1/B, T = 1000", BITSTREAMS)


def table6(results: Results) -> Shown:
    """Seconds of an epoch by set and B."""
    return _epochs(results, BY_GROUP, "set and batch", CLIPS)


def _epochs(results: Results, rows: Rows, what: str, samples: int) -> Shown:
    lines, ratios, papers = [], [], []
    for cell, (name, _, epoch) in rows.items():
        paper = [f"{value:g}" for value in (epoch.forward, epoch.baseline, epoch.bppsa)]
        paper.append(ratio(epoch.overall_ratio))
        found = results.get(cell)
        if found is None:
            lines.append([name, *["–"] * 4, *paper])
            continue
        steps = math.ceil(samples / found["batch"])
        ours, theirs = (_median(found, side, "overall") for side in ("ours", "theirs"))
        ratios.append(theirs / ours)
        papers.append(epoch.overall_ratio)
        mine = [ratio(steps * value) for value in (_median(found, "ours", "forward"), theirs, ours)]
        lines.append([name, *mine, ratio(theirs / ours), *paper])
    above = sum(ours >= theirs for ours, theirs in zip(ratios, papers, strict=True))
    sentence = (
        f"PyTorch takes {span(ratios)} our time for a pass forward and back, where the paper's baseline "
        f"takes {span(papers)} BPPSA's; ours is the larger ratio in {above} of {len(ratios)} rows. "
        f"{_where(results)}"
    )
    head = (what, "forward", "PyTorch", "ours", "ratio", "paper: forward", "baseline", "BPPSA", "ratio")
    caption = f"Seconds of an epoch of {samples:,} samples: here, and on the paper's V100"
    return Shown(compared(ratios, papers), sentence, tables=[Table(caption, head, lines)])


def _median(found: Mapping[str, Any], side: str, quantity: str) -> float:
    return float(found["seconds"][side][quantity]["median"])


def figure8(results: Results) -> Shown:
    """Latency, speed-up and breakdown, by T and by 1/B."""
    panels = []
    for letters, rows, label in (("abc", BY_LENGTH, "sequence length T"), ("def", BY_BATCH, "1/B")):
        there = {cell: row for cell, row in rows.items() if cell in results}
        if there:
            axis = sorted(there, key=lambda cell: rows[cell][1])
            panels += [
                _latency(letters[0], results, there, axis, label),
                _speed_up(letters[1], results, there, axis, label),
                _breakdown(letters[2], results, there, axis, label),
            ]
    every = {**BY_LENGTH, **BY_BATCH}
    cells = [cell for cell in every if cell in results]
    backward, scan = (
        [_ratio(results[cell], side, "backward") for cell in cells] for side in ("ours", "scan")
    )
    overall = [_ratio(results[cell], "ours", "overall") for cell in cells]
    sentence = (
        f"At most the way back is {ratio(max(backward))} times as quick as PyTorch's and the whole "
        f"{ratio(max(overall))} times; the paper has {FIGURE8_BACKWARD:g} on an RTX 2080 Ti and "
        f"{FIGURE8_OVERALL} on an RTX 2070. Ours goes back as the cost model says, on a processor step by "
        f"step in one fused loop: the gain is not the scan's. The scan over chunks itself is {span(scan)} "
        "as quick as PyTorch's way back. A processor has too few workers for the paper's rise with T: on "
        "that the two cannot be compared."
    )
    return Shown(
        compared([max(backward), max(overall)], [FIGURE8_BACKWARD, FIGURE8_OVERALL]), sentence, panels
    )


def _ratio(found: Mapping[str, Any], side: str, quantity: str) -> float:
    return _median(found, "theirs", quantity) / _median(found, side, quantity)


def _latency(letter: str, results: Results, rows: Rows, axis: Sequence[str], label: str) -> Panel:
    def draw(axes: Any) -> None:
        for side, (colour, name) in SIDES.items():
            laps = [results[cell]["seconds"][side]["backward"] for cell in axis]
            y = [1e3 * lap["median"] for lap in laps]
            spread = [[1e3 * abs(lap["quartiles"][k] - lap["median"]) for lap in laps] for k in (0, 1)]
            style = {"color": colour, "marker": "o", "markersize": 3.5, "capsize": 2, "label": name}
            axes.errorbar([rows[cell][1] for cell in axis], y, spread, **style)
        axes.set(xscale="log", yscale="log", xlabel=label, ylabel="milliseconds back")
        axes.legend()

    ends = ", ".join(
        f"{name} {1e3 * _median(results[axis[-1]], side, 'backward'):.3g}"
        for side, (_, name) in SIDES.items()
    )
    alt = f"Milliseconds of the way back by {label}; at {rows[axis[-1]][0]}: {ends}."
    return Panel(f"({letter}) Way back, an iteration; bars: quartiles", alt, draw)


def _speed_up(letter: str, results: Results, rows: Rows, axis: Sequence[str], label: str) -> Panel:
    lines = {
        name: (colour, "o-", [_ratio(results[cell], side, "backward") for cell in axis])
        for side, (colour, name) in SIDES.items()
        if side != "theirs"
    }
    lines["paper, V100"] = PAPER, "s--", [rows[cell][2].backward_ratio for cell in axis]

    def draw(axes: Any) -> None:
        for name, (colour, mark, y) in lines.items():
            axes.plot([rows[cell][1] for cell in axis], y, mark, color=colour, markersize=3.5, label=name)
        axes.axhline(1, color="#111827", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel=label, ylabel="baseline / ours")
        axes.legend()

    ends = ", ".join(f"{name} {y[-1]:.3g}" for name, (_, _, y) in lines.items())
    alt = f"Speed-up of the way back over PyTorch by {label}; at {rows[axis[-1]][0]}: {ends}."
    return Panel(f"({letter}) Speed-up of the way back", alt, draw)


def _breakdown(letter: str, results: Results, rows: Rows, axis: Sequence[str], label: str) -> Panel:
    def draw(axes: Any) -> None:
        _parts(axes, results, axis, rows, [rows[cell][0] for cell in axis])
        axes.set_xlabel(label)

    alt = f"Time forward and back by {label} as parts of PyTorch's whole: {_wholes(results, axis, rows)}."
    return Panel(f"({letter}) Left PyTorch, right ours", alt, draw)


def _wholes(results: Results, cells: Sequence[str], rows: Rows) -> str:
    """Ours of PyTorch's time, row by row."""
    return ", ".join(f"{rows[cell][0]} {1 / _ratio(results[cell], 'ours', 'overall'):.0%}" for cell in cells)


def _parts(axes: Any, results: Results, cells: Sequence[str], rows: Rows, names: Sequence[str]) -> None:
    """Two bars a row, forward and back on each other, of PyTorch's whole; and the paper's whole."""
    found, places = [results[cell] for cell in cells], range(len(cells))
    for side, shift, colours in (("theirs", -0.2, ("#fdba74", THEIRS)), ("ours", 0.2, ("#93c5fd", OURS))):
        whole = [_median(one, "theirs", "forward") + _median(one, "theirs", "backward") for one in found]
        parts = [
            [_median(one, side, quantity) / total for one, total in zip(found, whole, strict=True)]
            for quantity in ("forward", "backward")
        ]
        x = [k + shift for k in places]
        who = "PyTorch" if side == "theirs" else "ours"
        axes.bar(x, parts[0], 0.36, color=colours[0], label=f"{who} forward")
        axes.bar(x, parts[1], 0.36, parts[0], color=colours[1], label=f"{who} back")
    papers = [1 / rows[cell][2].overall_ratio for cell in cells]
    beside, mark = [k + 0.2 for k in places], {"color": PAPER, "markersize": 4}
    axes.plot(beside, papers, "D", label="paper's BPPSA, V100", **mark)
    axes.set_xticks(places, names, rotation=35 if len(names) > 4 else 0)
    axes.set(ylabel="of PyTorch's time", ylim=(0, 1.02))
    axes.figure.legend(loc="outside lower center", ncols=3, columnspacing=1)


def figure9(results: Results) -> Shown:
    """The breakdown of the GRU by set and B."""
    panels = []
    there = [cell for cell in BY_GROUP if cell in results]
    for name in SETS:
        cells = [f"gru {group_case(*group)}" for group in TABLE6 if group[0] == name]
        cells = [cell for cell in cells if cell in results]
        if cells:
            panels.append(_set(name, results, cells))
    backward, overall = (
        [_ratio(results[cell], "ours", quantity) for cell in there] for quantity in ("backward", "overall")
    )
    sentence = (
        f"At most the way back is {ratio(max(backward))} times as quick as PyTorch's and the whole "
        f"{ratio(max(overall))} times; the paper has {FIGURE9_BACKWARD} and {FIGURE9_OVERALL}. The paper's "
        "forward pass makes the gates again for the Jacobians; ours forms Jacobians from what the forward "
        f"pass keeps, so that there is no such overhead to show. {_where(results)}"
    )
    return Shown(
        compared([max(backward), max(overall)], [FIGURE9_BACKWARD, FIGURE9_OVERALL]), sentence, panels
    )


def _set(name: str, results: Results, cells: Sequence[str]) -> Panel:
    batches = [results[cell]["batch"] for cell in cells]

    def draw(axes: Any) -> None:
        _parts(axes, results, cells, BY_GROUP, [f"B = {batch}" for batch in batches])

    told = _wholes(results, cells, BY_GROUP)
    alt = f"Time forward and back of set {name} as parts of PyTorch's whole: {told}."
    return Panel(f"Set {name}, {SETS[name][0]} × {SETS[name][1]}: left PyTorch, right ours", alt, draw)
