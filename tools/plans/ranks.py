"""What each rank of a plan runs, holds and sends."""

from __future__ import annotations

from typing import Any

import numpy as np

from bppsa_cupy.plan import ChainPlan, Partition, Plan, RankSchedule, place, rank_memory_plans
from bppsa_cupy.plan.counts import message_bytes
from bppsa_cupy.plan.schedule import KIND, WORKER
from bppsa_cupy.system.units import counted, in_bytes
from bppsa_cupy.tools.plans.text import print_table


def partition_facts(partition: Partition, network: Any) -> list[dict[str, Any]]:
    """The layers of each rank, as JSON holds them: [first, after the last)."""
    names = [layer.get("type", "") for layer in network.get("layers", ())]
    parts = [partition.part(rank) for rank in range(partition.ranks)]
    return [
        {"rank": r, "layers": [p.start, p.stop], "types": names[p.start : p.stop]}
        for r, p in enumerate(parts)
    ]


def schedule_ranks(plan: Plan, chain: ChainPlan, name: str) -> dict[str, Any]:
    """What `show` tells of a schedule over ranks, as JSON holds it: its messages, and sums by rank."""
    assert plan.partition is not None
    owners = chain.chain.owners(plan.partition)
    placement = place(chain.schedules[name], owners, plan.partition.ranks)
    amounts = message_bytes(chain.sizes, placement, plan.batch_size, plan.itemsize)
    layouts = rank_memory_plans(chain.sizes, placement, plan.batch_size, plan.itemsize)
    rows = by_rank(placement, amounts)
    for row, layout in zip(rows, layouts, strict=True):
        row["value_bytes"] = layout.total_bytes
    messages = [
        {**message._asdict(), "segment": list(message.segment)} for message in placement.messages(amounts)
    ]
    return {"ranks": rows, "sent": sent_in_all(placement, amounts), "messages": messages}


def sent_in_all(placement: RankSchedule, amounts: np.ndarray) -> dict[str, int]:
    """Numbers and bytes of the vectors and the matrices that travel; `amounts` are the messages' bytes."""
    matrix = placement.sent[:, 1] > 0
    return {
        "vectors": int((~matrix).sum()),
        "vector_bytes": int(amounts[~matrix].sum()),
        "matrices": int(matrix.sum()),
        "matrix_bytes": int(amounts[matrix].sum()),
    }


def by_rank(placement: RankSchedule, amounts: np.ndarray) -> list[dict[str, Any]]:
    """Elements, steps, and messages with their bytes, of every rank."""
    ranks, table, sent = placement.ranks, placement.schedule.table, placement.sent
    of_kind = [np.bincount(table[table[:, KIND] == kind, WORKER], minlength=ranks) for kind in (0, 1)]
    columns = {
        "elements": np.bincount(placement.owners[1:], minlength=ranks),
        "mv": of_kind[0],
        "mm": of_kind[1],
        "sent": np.bincount(sent[:, 3], minlength=ranks),
        "sent_bytes": np.bincount(sent[:, 3], amounts, ranks).astype(np.int64),
        "received": np.bincount(sent[:, 4], minlength=ranks),
        "received_bytes": np.bincount(sent[:, 4], amounts, ranks).astype(np.int64),
    }
    return [
        {"rank": rank, **{name: int(column[rank]) for name, column in columns.items()}}
        for rank in range(ranks)
    ]


def print_partition(facts: list[dict[str, Any]]) -> None:
    """A line a rank: its layers."""
    for part in facts:
        first, behind = part["layers"]
        own = f"layers {first} to {behind - 1}: {', '.join(part['types'])}" if first < behind else "no layer"
        line = f"rank {part['rank']:<7} {own}"
        print(line if len(line) <= 120 else f"{line[:119]}…")


def print_ranks(facts: dict[str, Any]) -> None:
    """A table of ranks, and what travels in all."""
    rows = [
        (
            f"rank {row['rank']}",
            str(row["elements"]),
            str(row["mv"]),
            str(row["mm"]),
            f"{row['sent']}",
            in_bytes(row["sent_bytes"]),
            f"{row['received']}",
            in_bytes(row["received_bytes"]),
            in_bytes(row["value_bytes"]),
        )
        for row in facts["ranks"]
    ]
    print(f"  messages: {sent_text(facts['sent'])}")
    head = ("", "elements", "mv", "mm", "sent", "bytes", "received", "bytes", "values held")
    print_table(head, rows, "<>>>>>>>>")


def sent_text(sent: dict[str, int]) -> str:
    """ "3 vectors of 2.49 MB and 3 matrices of 130 MB" """
    parts = []
    for many, one in (("vectors", "vector"), ("matrices", "matrix")):
        if sent[many]:
            parts.append(f"{counted(sent[many], one, many)} of {in_bytes(sent[one + '_bytes'])}")
    return " and ".join(parts) or "none"
