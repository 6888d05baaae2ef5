"""A pipeline's report as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bppsa_cupy.system.units import in_bytes
from bppsa_cupy.tools.plans.text import print_table, time_writer

seconds = time_writer({"unit": "seconds"})


def print_pipeline(facts: Mapping[str, Any]) -> None:
    """The network's stages; then each rank of one schedule, or a line a schedule."""
    ppv = ",".join(map(str, facts["ppv"])) or "none"
    print(f"network     {facts['model']}: {len(facts['counted'])} counted layers, cut behind {ppv}")
    print(f"weights     {100 * facts['stale_share']:.1f} % are stale")
    print(
        f"batches     {facts['batches']} of {facts['batch_size']} samples, {facts['dtype']}, on "
        f"{facts['device']}; times: {facts['times']}"
    )
    print(
        f"speed-up    {seconds(facts['seconds_alone'])} a batch on one rank; at most "
        f"{facts['speedup_limit']:.2f} times as quick on {len(facts['stages'])}"
    )
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
    print(
        f"table 6     as torchsummary counts: {mib(found['weights'])} of weights, {mib(activations)} of "
        f"activations a sample; stale: {mib(found['increase_per_sample'])} more, "
        f"{100 * found['increase_share']:.1f} %"
    )


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
    print(f"\n{schedule['name']}{micro}: {schedule['summary']}")
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
    head = (
        "",
        "stale",
        "alive",
        "activations",
        "parcels",
        "scratch",
        "weights",
        "copies",
        "in all",
        "bubble",
    )
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
    print(
        f"  {where} {seconds(found['seconds_per_batch'])} a batch, {found['speedup']:.2f} times as quick as "
        f"one; bubbles {percent(found['bubble'])}"
    )


def _print_all(schedules: list[Mapping[str, Any]]) -> None:
    print("\nschedules")
    ranks = range(len(schedules[0]["ranks"]))
    rows = []
    for schedule in schedules:
        own = schedule["ranks"]
        micro = f" of {schedule['micro_batches']}" if schedule["micro_batches"] > 1 else ""
        rows.append(
            (
                f"{schedule['name']}{micro}",
                ",".join(str(rank["staleness"]) for rank in own),
                ",".join(str(rank["live_passes"]) for rank in own),
                *(in_bytes(rank["bytes"]["total"]) for rank in own),
                in_bytes(sum(rank["bytes"]["copies"] for rank in own)),
                seconds(schedule["seconds_per_batch"]),
                f"{schedule['speedup']:.2f}",
                percent(schedule["bubble"]),
            )
        )
    head = (
        "", "stale", "alive", *(f"rank {rank}" for rank in ranks), "copies", "a batch", "speed-up", "bubbles",
    )  # fmt: skip
    print_table(head, rows, "<<<" + ">" * (len(head) - 3))


def percent(share: float) -> str:
    """ "12.3 %" """
    return f"{100 * share:.1f} %"


def mib(count: float) -> str:
    """Bytes as the paper's MB."""
    return f"{count / 2**20:.2f} MiB"
