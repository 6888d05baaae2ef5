"""A plan in numbers: for people as tables, for programs as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from bppsa_cupy.plan import Budget, Chain, ChainPlan, Plan, Schedule, memory_plan
from bppsa_cupy.plan.counts import StepCounts, all_counts, run_schedule
from bppsa_cupy.system.units import counted, in_bytes, quantity
from bppsa_cupy.tools.plans.ranks import partition_facts, print_partition, print_ranks, schedule_ranks
from bppsa_cupy.tools.plans.text import print_table


def report(plan: Plan) -> dict[str, Any]:
    """What `show` tells, as JSON holds it. Multiply-adds and bytes are for the whole batch."""
    return {
        "fingerprint": plan.fingerprint,
        "network": dict(plan.network),
        "batch_size": plan.batch_size,
        "workers": plan.workers,
        "itemsize": plan.itemsize,
        "left_out": dict(plan.left_out),
        "partition": None if plan.partition is None else partition_facts(plan.partition, plan.network),
        "chains": [_chain_report(plan, chain) for chain in plan.chains],
    }


def _chain_report(plan: Plan, chain: ChainPlan) -> dict[str, Any]:
    elements = [
        {**facts, "sparsity": element.pattern.sparsity, "shared": element.shared}
        for facts, element in zip(element_facts(chain.chain), chain.chain.elements, strict=True)
    ]
    schedules = [_schedule_report(plan, chain, schedule) for schedule in chain.schedules.values()]
    return {"elements": elements, "products": len(chain.products), "schedules": schedules}


def element_facts(chain: Chain) -> list[dict[str, Any]]:
    """What every report tells of a chain's elements, as JSON holds it."""
    return [
        {"k": k, "name": e.name, "shape": list(e.pattern.shape), "nnz": e.pattern.nnz}
        for k, e in enumerate(chain.elements, 1)
    ]


def _schedule_report(plan: Plan, chain: ChainPlan, schedule: Schedule) -> dict[str, Any]:
    unbounded = Budget(plan.batch_size, plan.itemsize, max(len(schedule.table), 1))
    counts = all_counts(chain.sizes, schedule, unbounded)
    values = memory_plan(chain.sizes, schedule, plan.batch_size, plan.itemsize).total_bytes
    by_level: list[list[StepCounts]] = [[] for _ in range(schedule.depth)]
    for step in counts:
        by_level[step.step.level].append(step)
    return {
        "name": schedule.name,
        "levels": schedule.levels,
        "depth": schedule.depth,
        "multiply_adds": sum(step.multiply_adds for step in counts),
        "bytes": sum(step.bytes for step in counts),
        "critical_path": run_schedule(chain.sizes, schedule, unbounded)[1],
        "value_bytes": values,
        "index_bytes": max(chain.sizes.index_bytes(schedule), default=0),
        "by_level": [_level_report(level, steps) for level, steps in enumerate(by_level)],
        "over_ranks": None if plan.partition is None else schedule_ranks(plan, chain, schedule.name),
    }


def _level_report(level: int, steps: list[StepCounts]) -> dict[str, Any]:
    return {
        "level": level,
        "mm": sum(step.step.kind == "mm" for step in steps),
        "mv": sum(step.step.kind == "mv" for step in steps),
        "vjp": sum(step.step.kind == "vjp" for step in steps),
        "kinds": dict(sorted(Counter(s.kind for s in steps if s.step.kind == "mm").items())),
        "nnz": sum(step.nnz for step in steps if step.step.kind == "mm"),
        "multiply_adds": sum(step.multiply_adds for step in steps),
        "bytes": sum(step.bytes for step in steps),
        "longest": max((step.multiply_adds for step in steps), default=0),
    }


def print_report(facts: dict[str, Any]) -> None:
    """The report as tables."""
    layers = facts["network"].get("layers", [])
    unchecked = "" if facts["checksum"] else " (SHA-256 not compared: --checksum, or verify)"
    print(f"plan         {facts['file']}{unchecked}")
    print(f"fingerprint  {facts['fingerprint']}")
    print(
        f"network      {counted(len(layers), 'layer')}, input "
        f"{facts['network'].get('input_shape', 'unknown')}"
    )
    shared = counted(facts["workers"], "worker" if facts["partition"] is None else "rank")
    print(f"planned for  a batch of {facts['batch_size']}, {shared}")
    if facts["partition"] is not None:
        print_partition(facts["partition"])
    for name, needed in facts["left_out"].items():
        print(f"left out     {name}: {in_bytes(needed)}")
    for position, chain in enumerate(facts["chains"]):
        print(
            f"\nchain {position}: {counted(len(chain['elements']), 'element')}, "
            f"{counted(chain['products'], 'product')}"
        )
        _print_elements(chain["elements"])
        for schedule in chain["schedules"]:
            _print_schedule(schedule)


def _print_elements(elements: list[dict[str, Any]]) -> None:
    rows = [
        (
            f"a_{e['k']}",
            e["name"],
            f"{e['shape'][0]}×{e['shape'][1]}",
            quantity(e["nnz"]),
            f"{e['sparsity']:.5f}",
            "shared" if e["shared"] else "a sample",
        )
        for e in elements
    ]
    print_table(("", "layer", "shape", "nnz", "sparsity", "values"), rows, "<<>>><")


def _print_schedule(schedule: dict[str, Any]) -> None:
    levels = f" of {schedule['levels']} up-sweep levels" if schedule["levels"] is not None else ""
    if schedule["name"] == "hybrid" and not levels:
        levels = ", computed"
    print(
        f"\n{schedule['name']}{levels}: {quantity(schedule['multiply_adds'])} multiply-adds, critical path "
        f"{quantity(schedule['critical_path'])}\n  {in_bytes(schedule['value_bytes'])} of values, "
        f"{in_bytes(schedule['index_bytes'])} of patterns and maps"
    )
    rows = [
        (
            f"L{level['level']}",
            str(level["mv"]),
            str(level["vjp"]),
            str(level["mm"]),
            quantity(level["nnz"]),
            quantity(level["multiply_adds"]),
            quantity(level["longest"]),
            in_bytes(level["bytes"]),
            ", ".join(f"{n}×{kind}" if n > 1 else kind for kind, n in level["kinds"].items()),
        )
        for level in schedule["by_level"]
    ]
    head = ("", "mv", "VJP", "mm", "nnz of mm", "multiply-adds", "longest step", "bytes", "kinds of mm")
    print_table(head, rows, "<>>>>>>><")
    if schedule["over_ranks"] is not None:
        print_ranks(schedule["over_ranks"])
