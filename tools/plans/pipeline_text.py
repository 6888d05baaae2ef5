"""A pipeline's report as tables."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from bppsa_cupy.system.units import counted, in_bytes
from bppsa_cupy.tools.lines import COLUMNS, fact
from bppsa_cupy.tools.plans.text import print_table, time_writer

seconds = time_writer({"unit": "seconds"})


def print_pipeline(facts: Mapping[str, Any]) -> None:
    """The network's stages; then each rank of one schedule, or a line a schedule."""
    ppv = ",".join(map(str, facts["ppv"])) or "none"
    counted_layers = counted(len(facts["counted"]), "counted layer")
    of, where = counted(facts["batch_size"], "sample"), f"{facts['dtype']}, on {facts['device']}"
    alone, limit = seconds(facts["seconds_alone"]), f"{facts['speedup_limit']:.2f}"
    print(fact("network", f"{facts['model']}: {counted_layers}, cut behind {ppv}"))
    print(fact("weights", f"{100 * facts['stale_share']:.1f} % are stale"))
    print(fact("batches", f"{facts['batches']} of {of}, {where}; times: {facts['times']}"))
    on = f"at most {limit} times as quick on {len(facts['stages'])}"
    print(fact("speed-up", f"{alone} a batch on one rank; {on}"))
    _print_summary(facts["torchsummary"])
    _print_stages(facts)
    if len(facts["schedules"]) > 1:
        _print_all(facts["schedules"])
        return
    for schedule in facts["schedules"]:
        _print_schedule(schedule)


def _print_summary(found: Mapping[str, Any]) -> None:
    """Table 6."""
    activations = sum(found["activations_per_sample"])
    text = (
        f"as torchsummary counts: {mib(found['weights'])} of weights, {mib(activations)} of "
        f"activations a sample; stale: {mib(found['increase_per_sample'])} more, "
        f"{100 * found['increase_share']:.1f} %"
    )
    print(fact("table 6", text))


def _print_stages(facts: Mapping[str, Any]) -> None:
    print("\nstages")
    rows = [
        (
            str(stage["stage"]),
            stage["layers"],
            f"{stage['weights']:,}",
            seconds(stage["forward_seconds"]),
            seconds(stage["backward_seconds"]),
            seconds(stage["update_seconds"]),
        )
        for stage in facts["stages"]
    ]
    print_table(("", "layers", "weights", "forward", "backward", "update"), rows, "><>>>>")
    if facts["measured_bubbles"]:
        shares = ", ".join(percent(share) for share in facts["measured_bubbles"])
        print(f"  bubbles measured in the trace, by rank: {shares}")


def _print_schedule(schedule: Mapping[str, Any]) -> None:
    micro = f", {schedule['micro_batches']} micro-batches" if schedule["micro_batches"] > 1 else ""
    title = f"{schedule['name']}{micro}: {schedule['summary']}"
    print("\n" + textwrap.fill(title, COLUMNS, subsequent_indent="  "))
    rows = [
        (
            f"rank {rank}",
            str(own["staleness"]),
            str(own["live_passes"]),
            *(in_bytes(held) for held in _columns(own["bytes"])),
            percent(own["bubble"]),
        )
        for rank, own in enumerate(schedule["ranks"])
    ]
    held = ("activations", "parcels", "scratch", "weights", "copies", "in all")
    head = ("", "stale", "alive", *held, "bubble")
    print_table(head, rows, "<>>>>>>>>>")
    _print_speed(f"on {len(rows)} ranks", schedule)
    if (found := schedule["accelerators"]) is not None:
        _print_speed(f"on {found['count']} accelerators, as the paper has it,", found)


def _columns(held: Mapping[str, int]) -> tuple[int, ...]:
    """What the table shows of a rank's bytes: gradients, the optimizer's state and buffers count as weights,
    sums of micro-batches as copies."""
    weights = held["weights"] + held["gradients"] + held["optimizer"] + held["buffers"]
    parcels, copies = held["received"] + held["sent"], held["copies"] + held["sums"]
    return held["activations"], parcels, held["scratch"], weights, copies, held["total"]


def _print_speed(where: str, found: Mapping[str, Any]) -> None:
    text = (
        f"{where} {seconds(found['seconds_per_batch'])} a batch, {found['speedup']:.2f} times as quick as "
        f"one; bubbles {percent(found['bubble'])}"
    )
    print(textwrap.fill(text, COLUMNS, initial_indent="  ", subsequent_indent="    "))


def _print_all(schedules: list[Mapping[str, Any]]) -> None:
    micro = [f" of {one['micro_batches']}" if one["micro_batches"] > 1 else "" for one in schedules]
    names = [one["name"] + of for one, of in zip(schedules, micro, strict=True)]
    rows = [
        (
            name,
            in_bytes(sum(rank["bytes"]["copies"] for rank in schedule["ranks"])),
            seconds(schedule["seconds_per_batch"]),
            f"{schedule['speedup']:.2f}",
            percent(schedule["bubble"]),
        )
        for name, schedule in zip(names, schedules, strict=True)
    ]
    print("\nschedules")
    print_table(("", "copies", "a batch", "speed-up", "bubbles"), rows, "<>>>>")
    _print_by_rank("updates that a forward pass misses (passes alive)", names, schedules,
                   lambda rank: f"{rank['staleness']} ({rank['live_passes']})")  # fmt: skip
    _print_by_rank("memory", names, schedules, lambda rank: in_bytes(rank["bytes"]["total"]))


def _print_by_rank(
    title: str, names: list[str], schedules: list[Mapping[str, Any]], cell: Callable[[Mapping[str, Any]], str]
) -> None:
    print(f"\n{title}")
    count = max(len(schedule["ranks"]) for schedule in schedules)
    rows = [
        (name, *map(cell, schedule["ranks"]), *[""] * (count - len(schedule["ranks"])))
        for name, schedule in zip(names, schedules, strict=True)
    ]
    print_table(("", *(f"rank {number}" for number in range(count))), rows, "<" + ">" * count)


def percent(share: float) -> str:
    """ "12.3 %" """
    return f"{100 * share:.1f} %"


def mib(count: float) -> str:
    """Bytes as the paper's MB."""
    return f"{count / 2**20:.2f} MiB"
