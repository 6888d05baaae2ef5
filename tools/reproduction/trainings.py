"""Figures 6, 7 and 13: training curves."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.tools.paper import FIGURE7_BACKWARD, FIGURE7_OVERALL, SETS
from bppsa_cupy.tools.pictures.svg import OURS, SCAN, THEIRS, Panel
from bppsa_cupy.tools.reproduction import sequences
from bppsa_cupy.tools.reproduction.curves import PYTORCH
from bppsa_cupy.tools.reproduction.drawings import BY_METHOD, draw_means, smooth
from bppsa_cupy.tools.reproduction.lenet5 import compare_all, labels
from bppsa_cupy.tools.reproduction.shown import (
    INCOMPARABLE,
    SAME,
    WORSE,
    Results,
    Shown,
    Table,
    compared,
    span,
)

DTYPES = ("float64", "float32")
#: Colours and widths of the curves: those below are wider.
BY_RUN = {PYTORCH: (THEIRS, 3.0), "auto": (OURS, 1.6), "blelloch": (SCAN, 1.0)}
LABELS = {PYTORCH: PYTORCH, "auto": "ours, auto", "blelloch": "ours, by scan"}


def lenet5(results: Results) -> Shown:
    """Figure 6: losses by step, by every method."""
    by_dtype = {
        dtype: {
            run: results[f"LeNet-5 {dtype} {run}"]["losses"]
            for run in labels(dtype)
            if f"LeNet-5 {dtype} {run}" in results
        }
        for dtype in DTYPES
    }
    found = compare_all({d: losses for d, losses in by_dtype.items() if len(losses) == len(labels(d))})
    rows = [
        [
            f"{row['dtype']}, {row['method']}", f"{row['steps']:,}", _small(row["first_difference"]),
            _small(row["limit"]), _small(row["difference"]),
            "–" if row["noise"] is None else _small(row["noise"]), "agrees" if row["agrees"] else "differs",
        ]
        for row in found
    ]  # fmt: skip
    agrees = all(row["agrees"] for row in found)
    panels = [_by_step(dtype, losses) for dtype, losses in by_dtype.items() if losses]
    data = next(iter(results.values()))["data"]
    sentence = "The paper's two curves lie on each other" + (
        ", and so do ours: as long as rounding has not grown, every scan's losses are those of "
        "back-propagation to rounding."
        if agrees
        else "; a scan's curve leaves back-propagation's by more than rounding explains."
    )
    if data != "cifar10":
        sentence += f" The images are those of '{data}', not the paper's CIFAR-10: give --images."
    head = ("run", "steps compared", "difference in these", "limit", "in all steps", "by noise", "verdict")
    caption = (
        "Largest relative differences of losses to those of bp; the limit in float32: eps times layers times "
        "steps, in the steps before training amplifies noise of one ulp on the gradients of bp"
    )
    return Shown(SAME if agrees else WORSE, sentence, panels, [Table(caption, head, rows)])


def _small(value: float) -> str:
    return f"{value:.1e}" if value else "0"


def _by_step(dtype: str, losses: dict[str, list[float]]) -> Panel:
    def draw(axes: Any) -> None:
        for run, values in losses.items():
            if run in BY_METHOD:
                colour, width = BY_METHOD[run]
                draw_means(axes, values, max(1, len(values) // 300), color=colour, linewidth=width, label=run)
        axes.set(xlabel="step", ylabel="training loss")
        axes.legend()

    alt = f"Training loss of LeNet-5 by step in {dtype}, a curve each of {', '.join(losses)}."
    return Panel(f"LeNet-5, {dtype}: all methods", alt, draw)


def rnn(results: Results) -> Shown:
    """Figure 7."""
    named = {dtype: f"RNN {dtype}" for dtype in DTYPES}
    shown = _sequences(results, named)
    overall = _ratios(results, named.values(), "auto")
    sentence = (
        f"PyTorch takes {span(overall)} our time of training on this machine, optimizer and data included, "
        f"and {span(_ratios(results, named.values(), 'blelloch'))} that of the scan over chunks; the paper "
        f"has {FIGURE7_OVERALL} on an RTX 2070, and {FIGURE7_BACKWARD:g} for the way back alone."
    )
    return _told(shown, sentence, compared(overall, [FIGURE7_OVERALL] * len(overall)))


def gru(results: Results) -> Shown:
    """Figure 13."""
    named = {f"{name}, {dtype}": f"GRU {name} {dtype}" for name in SETS for dtype in DTYPES}
    shown = _sequences(results, named)
    sentence = (
        "The paper gives the curves without numbers; ours fall as PyTorch's do, and PyTorch takes "
        f"{span(_ratios(results, named.values(), 'auto'))} as long."
    )
    if any(one["data"] == "waves" for one in results.values()):
        sentence += " Sets without a file given by --audio hold waves of IRMAS's sizes in place of its clips."
    return _told(shown, sentence, INCOMPARABLE)


def _told(shown: Shown, sentence: str, verdict: str) -> Shown:
    """With a sentence before what is said of the losses; losses that differ are worse than any time."""
    return Shown(
        WORSE if shown.verdict == WORSE else verdict,
        f"{sentence} {shown.sentence}",
        shown.panels,
        shown.tables,
    )


def _ratios(results: Results, cells: Any, method: str) -> list[float]:
    return [results[cell]["comparison"]["speed_ratio"][method] for cell in cells if cell in results]


def _sequences(results: Results, named: dict[str, str]) -> Shown:
    panels, rows, agrees = [], [], True
    for title, cell in named.items():
        if cell not in results:
            continue
        found = results[cell]
        comparison = found["comparison"]
        steps, features = found["shape"]
        panels.append(_by_time(f"{cell}: T = {steps}", found["curves"]))
        for method in sequences.METHODS:
            agrees &= comparison["agrees"][method]
            rows.append(
                [
                    f"{title}, {LABELS[method]}", f"{steps} × {features}",
                    f"{comparison['difference'][method]:.1e}", f"{comparison['limit']:.1e}",
                    f"{comparison['speed_ratio'][method]:.3g}",
                    "; ".join(way.partition(" (")[0] for way in found["curves"][method]["backward"]),
                ]
            )  # fmt: skip
    sentence = (
        "All losses are PyTorch's to rounding."
        if agrees
        else "Some losses leave PyTorch's by more than rounding."
    )
    head = ("run", "T × F", "difference to PyTorch", "limit", "PyTorch's time / ours", "what went back")
    caption = (
        "Losses against PyTorch's: the largest relative difference, and three times what rounding noise does"
    )
    return Shown(SAME if agrees else WORSE, sentence, panels, [Table(caption, head, rows)])


def _by_time(title: str, runs: dict[str, Any]) -> Panel:
    def draw(axes: Any) -> None:
        for run, (colour, width) in BY_RUN.items():
            losses = smooth(runs[run]["losses"], sequences.STRIDE)
            axes.plot(runs[run]["seconds"], losses, color=colour, linewidth=width, label=LABELS[run])
        axes.set(xscale="log", xlabel="seconds", ylabel="training loss, mean of 20 points")
        axes.legend()

    alt = f"Training loss by wall-clock seconds, {title}, by PyTorch and twice by us."
    ends = {run: runs[run]["seconds"][-1] for run in BY_RUN}
    alt += (
        " Seconds at the end: " + ", ".join(f"{LABELS[run]} {value:.3g}" for run, value in ends.items()) + "."
    )
    return Panel(title, alt, draw)
