"""Passes over several ranks against one process of one of them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from bppsa_cupy.tools.benchmarks.harness import Row, timed_row
from bppsa_cupy.tools.benchmarks.launch import measure_on_ranks

#: Networks whose batches are shared.
CASES: list[dict[str, Any]] = [
    {"name": "lenet5 B=256", "model": "lenet5", "batch_size": 256},
    {"name": "resnet20 B=64", "model": "resnet20", "batch_size": 64},
    {"name": "GRU T=1000 B=32 H=128", "steps": 1000, "features": 16, "hidden": 128, "batch_size": 32},
]
QUICK_CASES: list[dict[str, Any]] = [
    {"name": "lenet5 B=4", "model": "lenet5", "batch_size": 4},
    {"name": "GRU T=5 B=2 H=3", "steps": 5, "features": 2, "hidden": 3, "batch_size": 2},
]
#: Of linear recurrences whose steps are shared.
LINEAR_CASE = {"steps": 1_000_000, "hidden": 64, "batch_size": 1}
#: Steps and units of the RNNs whose steps are shared.
TIME_CASES = [(500, 20), (500, 64), (5000, 20), (5000, 64), (30000, 64), (30000, 20)]


def run(arguments: argparse.Namespace) -> Iterator[list[Row]]:
    """Passes over ranks of one thread each, over batches, layers and time, and messages."""
    if arguments.quick:
        arguments.model, arguments.batch_size, arguments.steps = "lenet5", 2, 200
        arguments.hidden_size = 20
    chosen = arguments.steps, arguments.hidden_size
    cases = list(dict.fromkeys((chosen[0] or steps, chosen[1] or hidden) for steps, hidden in TIME_CASES))
    options = {
        "layers": {
            "model": arguments.model,
            "prune": arguments.prune,
            "batch_size": arguments.batch_size,
            "methods": arguments.methods,
            "repeats": arguments.repeats,
        },
        "linear": {
            **LINEAR_CASE,
            **({"steps": arguments.steps} if arguments.steps else {}),
            **({"hidden": arguments.hidden_size} if arguments.hidden_size else {}),
            "repeats": arguments.repeats,
        },
        "batch": {"repeats": arguments.repeats, "cases": QUICK_CASES if arguments.quick else CASES},
        "time": {
            "cases": [{"steps": steps, "hidden": hidden} for steps, hidden in cases],
            "batch_size": arguments.batch_size,
            "repeats": arguments.repeats,
        },
    }
    chosen_ways = {over: options[over] for over in arguments.over}
    found = measure_on_ranks(arguments.rank_count, "ranks_program", chosen_ways)
    yield [
        *_batch_rows(arguments, found.get("batch", {})),
        *(_layer_rows(arguments, found["layers"]) if "layers" in found else []),
        *(
            row
            for (steps, hidden), its in zip(cases, found.get("time", ()), strict="time" in found)
            for row in _time_rows(arguments, steps, hidden, its)
        ),
        *(_linear_rows(arguments, options["linear"], found["linear"]) if "linear" in found else []),
    ]


def _batch_rows(arguments: argparse.Namespace, found: dict[str, Any]) -> list[Row]:
    """Steps of a shared batch against a part of what a process takes for all of it beside others,
    and against PyTorch's."""
    rows = []
    for name, samples in found.items():
        case = f"{name}, {arguments.rank_count} ranks over the batch"
        part = [seconds / arguments.rank_count for seconds in samples["apart"]]
        rows.append(timed_row(case, "step", samples["together"], part, "a part of a process's own time"))
        if "ddp" in samples:
            rows.append(timed_row(case, "step", samples["together"], samples["ddp"], "PyTorch's DDP, gloo"))
    return rows


def _layer_rows(arguments: argparse.Namespace, found: dict[str, Any]) -> list[Row]:
    pruned = "" if arguments.prune is None else f" pruned by {100 * arguments.prune:g} %"
    case = f"{arguments.model}{pruned} B={arguments.batch_size}, {arguments.rank_count} ranks"
    rows = []
    for method, samples in found["methods"].items():
        note = f"layers from {', '.join(map(str, found['partition'][:-1]))}; gradients equal to the bit"
        rows.append(
            timed_row(
                f"{case}, {method}",
                "backward",
                samples["together"],
                samples["alone"],
                "one process",
                note=note,
            )
        )
    return rows


def _time_rows(arguments: argparse.Namespace, steps: int, hidden: int, found: dict[str, Any]) -> list[Row]:
    network = f"RNN T={steps} B={arguments.batch_size} H={hidden}"
    case = f"{network}, {arguments.rank_count} ranks over time"
    forward = timed_row(
        case, "forward", found["forward"]["together"], found["forward"]["alone"], "one process, serially",
        note="; ".join(found["forward"]["ran"]),
    )  # fmt: skip
    measured = [
        timed_row(
            f"{case}, {method}", "backward", samples["together"], samples["alone"], "one process, serially",
            note="; ".join(samples["ran"]),
        )
        for method, samples in found["ways"].items()
    ]  # fmt: skip
    one = timed_row(
        f"{network}, one process, auto", "backward", found["one"]["auto"], found["ways"]["auto"]["alone"],
        "one process, serially", note="; ".join(found["one"]["ran"]),
    )  # fmt: skip
    return [forward, *measured, one]


def _linear_rows(arguments: argparse.Namespace, sizes: dict[str, Any], found: dict[str, Any]) -> list[Row]:
    """A MinGRU whose steps are shared."""
    case = f"MinGRU T={sizes['steps']} B={sizes['batch_size']} H={sizes['hidden']}"
    return [
        timed_row(f"{case}, {arguments.rank_count} ranks over time", verb, samples["together"],
                  samples["alone"], "one process")
        for verb, samples in found.items()
    ]  # fmt: skip
