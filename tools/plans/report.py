"""Plans and planned products in numbers: for people as tables, for programs as JSON."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from bppsa_cupy.plan import Budget, Chain, ChainPlan, Plan, Schedule, memory_plan, place, rank_memory_plan
from bppsa_cupy.plan.plan import critical_path, multiply_adds
from bppsa_cupy.plan.schedule import Step
from bppsa_cupy.plan.sizes import ChainSizes
from bppsa_cupy.products.file import read_product_file
from bppsa_cupy.products.steps import result_pattern
from bppsa_cupy.system.units import counted, in_bytes, quantity
from bppsa_cupy.tools.lines import print_table


class StepCounts(NamedTuple):
    """The counts of one step.

    `kind` is the kind of the product, "csr_mv" for a matrix times a vector, or "vjp" for the VJP of a layer.
    `nnz` counts the entries of the result, or the rows of a vector. `multiply_adds` are for the batch.
    """

    step: Step
    kind: str
    nnz: int
    multiply_adds: int


def all_counts(sizes: ChainSizes, schedule: Schedule, batch_size: int) -> list[StepCounts]:
    """The counts of every step, in the schedule's order."""
    counts = []
    for step, terms in zip(schedule.steps, multiply_adds(sizes, schedule, batch_size), strict=True):
        kind, nnz = "vjp" if step.kind == "vjp" else "csr_mv", sizes.chain.length(step.end)
        if step.kind == "mm":
            kind, nnz = sizes.product(step).kind, sizes.nnz(step.out)
        counts.append(StepCounts(step, kind, nnz, terms))
    return counts


def report(plan: Plan) -> dict[str, Any]:
    """What `show` tells, as JSON holds it. Multiply-adds and bytes are for the whole batch."""
    return {
        "fingerprint": plan.fingerprint,
        "network": dict(plan.network),
        "batch_size": plan.batch_size,
        "workers": plan.workers,
        "itemsize": plan.itemsize,
        "left_out": dict(plan.left_out),
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
    counts = all_counts(chain, schedule, plan.batch_size)
    values = memory_plan(chain, schedule, plan.batch_size, plan.itemsize).total_bytes
    by_level: list[list[StepCounts]] = [[] for _ in range(schedule.depth)]
    for step in counts:
        by_level[step.step.level].append(step)
    return {
        "name": schedule.name,
        "levels": schedule.levels,
        "depth": schedule.depth,
        "multiply_adds": sum(step.multiply_adds for step in counts),
        "critical_path": critical_path(chain, schedule, unbounded),
        "value_bytes": values,
        "by_level": [_level_report(level, steps) for level, steps in enumerate(by_level)],
        "over_ranks": _rank_reports(plan, chain, schedule),
    }


def _rank_reports(plan: Plan, chain: ChainPlan, schedule: Schedule) -> list[dict[str, Any]]:
    """The steps, messages and bytes of each rank of a plan over ranks."""
    if plan.partition is None:
        return []
    placement = place(schedule, chain.chain.owners(plan.partition), plan.partition.ranks)
    amounts = chain.values_sizes(placement.sent[:, 1:3], plan.batch_size) * plan.itemsize
    rows = []
    for rank in range(placement.ranks):
        part, kinds = plan.partition.part(rank), Counter[str]()
        kinds.update(step.kind for step in placement.schedule.steps if step.worker == rank)
        sent, received = (amounts[placement.sent[:, column] == rank] for column in (3, 4))
        layout = rank_memory_plan(chain, placement, rank, plan.batch_size, plan.itemsize)
        row = {"rank": rank, "layers": [part.start, part.stop], "mv": kinds["mv"], "mm": kinds["mm"]}
        row |= {"sent": len(sent), "sent_bytes": int(sent.sum())}
        row |= {"received": len(received), "received_bytes": int(received.sum())}
        rows.append({**row, "value_bytes": layout.total_bytes})
    return rows


def _level_report(level: int, steps: list[StepCounts]) -> dict[str, Any]:
    return {
        "level": level,
        "mm": sum(step.step.kind == "mm" for step in steps),
        "mv": sum(step.step.kind == "mv" for step in steps),
        "vjp": sum(step.step.kind == "vjp" for step in steps),
        "kinds": dict(sorted(Counter(s.kind for s in steps if s.step.kind == "mm").items())),
        "nnz": sum(step.nnz for step in steps if step.step.kind == "mm"),
        "multiply_adds": sum(step.multiply_adds for step in steps),
        "longest": max((step.multiply_adds for step in steps), default=0),
    }


def print_report(facts: dict[str, Any]) -> None:
    """The report as tables."""
    layers = facts["network"].get("layers", [])
    print(f"plan         {facts['file']}")
    print(f"fingerprint  {facts['fingerprint']}")
    print(
        f"network      {counted(len(layers), 'layer')}, input "
        f"{facts['network'].get('input_shape', 'unknown')}"
    )
    print(f"planned for  a batch of {facts['batch_size']}, {counted(facts['workers'], 'worker')}")
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
    print(
        f"\n{schedule['name']}{levels}: {quantity(schedule['multiply_adds'])} multiply-adds, critical path "
        f"{quantity(schedule['critical_path'])}\n  {in_bytes(schedule['value_bytes'])} of values"
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
            ", ".join(f"{n}×{kind}" if n > 1 else kind for kind, n in level["kinds"].items()),
        )
        for level in schedule["by_level"]
    ]
    head = ("", "mv", "VJP", "mm", "nnz of mm", "multiply-adds", "longest step", "kinds of mm")
    print_table(head, rows, "<>>>>>><")
    if schedule["over_ranks"]:
        ranks = [
            (
                f"rank {row['rank']}",
                "{}–{}".format(*row["layers"]),
                *(str(row[name]) for name in ("mv", "mm")),
                *(f"{row[side]}: {in_bytes(row[f'{side}_bytes'])}" for side in ("sent", "received")),
                in_bytes(row["value_bytes"]),
            )
            for row in schedule["over_ranks"]
        ]
        print_table(("", "layers", "mv", "mm", "sent", "received", "values"), ranks, "<>>>>>>")


# ---- planned products ----


def product_report(path: Path) -> dict[str, Any]:
    """The sizes in a product file as JSON holds them; multiply-adds are for one sample."""
    factors, multiplications, out_format, pattern = read_product_file(path)
    names = [f"factor {number}" for number in range(1, len(factors) + 1)]
    names += [f"product {number}" for number in range(1, len(multiplications) + 1)]
    return {
        "result": {"format": out_format, "nnz": pattern.nnz},
        "factors": [
            {
                "shape": list(f.pattern.shape),
                "nnz": f.pattern.nnz,
                "sparsity": f.pattern.sparsity,
                "reordered": f.order is not None,
            }
            for f in factors
        ],
        "products": [
            {
                "left": names[m.left] if m.left >= 0 else f"{names[~m.left]}ᵀ",
                "right": names[m.right],
                "block": list(m.block),
                "shape": list(result_pattern(m).shape),
                "nnz": result_pattern(m).nnz,
                "multiply_adds": m.multiply_adds,
                "kinds": {"one_sample": m.single.kind, "several_samples": m.many.kind},
                "map_bytes": max(m.single.map_bytes, m.many.map_bytes),
            }
            for m in multiplications
        ],
    }


def print_product_report(facts: dict[str, Any]) -> None:
    """The report as tables."""
    print(f"planned product  {facts['file']}\n")
    rows = [
        (
            f"factor {number}",
            f"{f['shape'][0]}×{f['shape'][1]}",
            quantity(f["nnz"]),
            f"{f['sparsity']:.5f}",
            "in another order" if f["reordered"] else "in the order of the pattern",
        )
        for number, f in enumerate(facts["factors"], 1)
    ]
    print_table(("", "shape", "nnz", "sparsity", "values"), rows, "<>>><")
    print()
    products = [
        (
            f"product {number}",
            f"{p['left']} · {p['right']}",
            f"{p['shape'][0]}×{p['shape'][1]}",
            quantity(p["nnz"]),
            quantity(p["multiply_adds"]),
            "×".join(map(str, p["block"])),
            p["kinds"]["one_sample"],
            p["kinds"]["several_samples"],
            in_bytes(p["map_bytes"]),
        )
        for number, p in enumerate(facts["products"], 1)
    ]
    head = (
        "",
        "operands",
        "shape",
        "nnz",
        "multiply-adds",
        "blocks",
        "one sample",
        "several samples",
        "maps",
    )
    print_table(head, products, "<<>>><<<>")
    print(f"\nresult  {facts['result']['format']}, {quantity(facts['result']['nnz'])} entries")
