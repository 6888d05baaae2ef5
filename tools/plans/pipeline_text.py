"""A pipeline's report as tables."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from bppsa_cupy.system.units import counted, in_bytes
from bppsa_cupy.tools.lines import COLUMNS, fact
from bppsa_cupy.tools.plans.text import print_table

#: Columns of memory by name.
BYTES = {
    "weights": "weights", "activations": "activations", "copies": "copies",
    "weight_copies": "weight copies", "total": "in all",
}  # fmt: skip


def print_pipeline(facts: Mapping[str, Any]) -> None:
    """The network's stages; then each stage under one schedule, or a line a schedule."""
    ppv = ",".join(map(str, facts["ppv"])) or "none"
    counted_layers = counted(len(facts["counted"]), "counted layer")
    of, where = counted(facts["batch_size"], "sample"), f"{facts['dtype']}, on {facts['device']}"
    print(fact("network", f"{facts['model']}: {counted_layers}, cut behind {ppv}"))
    print(fact("weights", f"{100 * facts['stale_share']:.1f} % are stale"))
    print(fact("batch", f"{of}, {where}"))
    _print_stages(facts)
    if len(facts["schedules"]) > 1:
        _print_all(facts["schedules"])
        return
    for schedule in facts["schedules"]:
        _print_schedule(schedule)


def _print_stages(facts: Mapping[str, Any]) -> None:
    print("\nstages")
    rows = [(str(own["stage"]), own["layers"], f"{own['weights']:,}") for own in facts["stages"]]
    print_table(("", "layers", "weights"), rows, "><>")


def _print_schedule(schedule: Mapping[str, Any]) -> None:
    micro = f", {schedule['micro_batches']} micro-batches" if schedule["micro_batches"] > 1 else ""
    title = f"{schedule['name']}{micro}: {schedule['summary']}"
    print("\n" + textwrap.fill(title, COLUMNS, subsequent_indent="  "))
    rows = [
        (
            f"stage {stage}",
            str(own["staleness"]),
            str(own["live_passes"]),
            *(in_bytes(own["bytes"][name]) for name in BYTES),
        )
        for stage, own in enumerate(schedule["stages"])
    ]
    print_table(("", "stale", "alive", *BYTES.values()), rows, "<>>>>>>>")
    activations, copies = (
        sum(own["bytes"][name] for own in schedule["stages"]) for name in ("activations", "copies")
    )
    if copies:
        print(f"  copies of activations: {100 * copies / activations:.1f} % more")


def _print_all(schedules: list[Mapping[str, Any]]) -> None:
    micro = [f" of {one['micro_batches']}" if one["micro_batches"] > 1 else "" for one in schedules]
    names = [one["name"] + of for one, of in zip(schedules, micro, strict=True)]
    _print_by_stage("updates that a forward pass misses (passes alive)", names, schedules,
                    lambda own: f"{own['staleness']} ({own['live_passes']})")  # fmt: skip
    _print_by_stage("memory", names, schedules, lambda own: in_bytes(own["bytes"]["total"]))


def _print_by_stage(
    title: str, names: list[str], schedules: list[Mapping[str, Any]], cell: Callable[[Mapping[str, Any]], str]
) -> None:
    print(f"\n{title}")
    count = len(schedules[0]["stages"])
    rows = [(name, *map(cell, one["stages"])) for name, one in zip(names, schedules, strict=True)]
    print_table(("", *(f"stage {number}" for number in range(count))), rows, "<" + ">" * count)
