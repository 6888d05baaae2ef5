"""What kernels and passes over time are to take on an H200, beside what their machine code says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bppsa_cupy.tools.instruments.machine_code.predictions import GRU_CASE, LONGEST

#: Cycles of a step on the target that predicts, H = 20.
CYCLES: dict[str, float] = {
    "rnn_tanh_forward": 170, "rnn_tanh_backward": 200, "gru_forward": 350, "gru_backward": 350,
    "lstm_forward": 400, "lstm_backward": 400, "chunk_scan": 300,
}  # fmt: skip
#: Seconds of the quickest way, back with the gradients of weights, by the part of a report that predicts it.
SECONDS = {
    ("predictions", "rnn_tanh", "forward"): 3e-3,
    ("predictions", "rnn_tanh", "backward"): 0.5e-3,
    ("predictions_gru", "gru", "forward"): 0.2e-3,
    ("predictions_gru", "gru", "backward"): 0.2e-3,
}
#: The case that each of these parts is of.
CASES = {"predictions": LONGEST, "predictions_gru": GRU_CASE}

Line = tuple[str, str, str, str]


def goals(report: Mapping[str, Any], target: str) -> Iterator[Line]:
    """Lines of what it is, the goal, what is predicted, and whether that is within; of the kernels and
    predictions that a report has."""
    cycles = {row["kernel"]: row["cycles"]["L2"] for row in report["rows"] if row["target"] == target}
    for kernel, goal in CYCLES.items():
        if kernel in cycles:
            yield _line(f"{kernel}, cycles a step", goal, cycles[kernel], "{:.0f}")
    for (part, cell, verb), goal in SECONDS.items():
        if report[part]:
            what = f"{cell}, T = {CASES[part].steps}, {verb}, ms"
            yield _line(what, goal * 1e3, quickest(report[part], cell, verb) * 1e3, "{:.2f}")


def quickest(parts: Iterable[Mapping[str, Any]], cell: str, verb: str) -> float:
    """Seconds of the quickest way of a pass, and of what belongs to every way."""
    ways: dict[str, float] = defaultdict(float)
    for part in parts:
        if part["cell"] == cell and part["way"].startswith(verb):
            ways[part["way"]] += part["seconds"]
    common = ways.pop(verb, 0.0)
    return common + min(ways.values())


def _line(what: str, goal: float, found: float, form: str) -> Line:
    return what, f"≤ {goal:g}", form.format(found), "yes" if found <= goal else "no"
