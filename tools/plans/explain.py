"""How many multiply-adds each schedule of a plan's chains has on its critical path, on p workers."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bppsa_cupy.plan import Budget, Chain, ChainPlan, Plan, Schedule
from bppsa_cupy.plan.plan import critical_path, multiply_adds, shortest, vjp_multiply_adds
from bppsa_cupy.plan.schedule import blelloch, every_hybrid, linear
from bppsa_cupy.plan.sizes import ChainSizes
from bppsa_cupy.system.units import in_bytes, quantity
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.lines import print_table

BASELINE = "bp"


def run_explain(arguments: argparse.Namespace) -> None:
    """Print the counts of each schedule."""
    options = cli.taken(arguments, "workers", "batch_size", "memory_limit")
    facts = explain(Plan.load(arguments.file), **options, progress=True)
    facts = {"file": str(arguments.file), **facts}
    if arguments.json:
        print(json.dumps(facts))
    else:
        print_explanation(facts)


def explain(
    plan: Plan,
    *,
    workers: Sequence[int] | None = None,
    batch_size: int | None = None,
    memory_limit: int | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """The facts for JSON. Counts are for the whole batch.

    By default, `workers` are 1, 2, 4, … and the length of the chain, and the batch size is that of the plan.
    `memory_limit` bounds the bytes of the values of a hybrid schedule.
    """
    batch = plan.batch_size if batch_size is None else batch_size
    budget = Budget(batch, plan.itemsize, memory=memory_limit)
    return {
        "batch_size": batch,
        "itemsize": plan.itemsize,
        "memory_limit": memory_limit,
        "over_ranks": None if plan.partition is None else plan.critical_paths(batch, plan.partition),
        "chains": [
            {
                **_chain_facts(chain.chain, budget, workers or _powers(len(chain.chain)), progress),
                "planned": _crossed(chain),
            }
            for chain in plan.chains
        ],
    }


def _crossed(chain: ChainPlan) -> dict[str, list[str]] | None:
    """Which layers the plan's hybrid fills the Jacobians of, and which it crosses by their VJPs; None without
    such a schedule, or of matrices, which have no VJPs."""
    schedule = chain.schedules.get("hybrid")
    if schedule is None or all(element.name.startswith("J_") for element in chain.chain.elements):
        return None
    names = {True: [], False: []}  # type: dict[bool, list[str]]
    for k, element in enumerate(chain.chain.elements, 1):
        names[k in schedule.vjps].append(element.name)
    return {"filled": names[False], "vjps": names[True]}


def _powers(n: int) -> list[int]:
    """1, 2, 4, … and n."""
    return [2**k for k in range((n - 1).bit_length())] + [n] if n > 1 else [1]


def _chain_facts(chain: Chain, budget: Budget, workers: Sequence[int], progress: bool) -> dict[str, Any]:
    n = len(chain)
    sizes = ChainSizes(chain, blelloch(n).out, progress=progress)
    fixed = {"linear": linear(n), "blelloch": blelloch(n)}
    hybrids = every_hybrid(n)
    baseline = vjp_multiply_adds(chain, budget.batch_size)
    rows = []
    for p in workers:
        with_workers = Budget(budget.batch_size, budget.itemsize, p, budget.memory)
        chosen = shortest(sizes, hybrids if p > 1 else hybrids[:1], with_workers)
        paths = {name: critical_path(sizes, schedule, with_workers) for name, schedule in fixed.items()}
        paths["hybrid"] = critical_path(sizes, chosen, with_workers)
        fewest = min(paths, key=lambda name: paths[name])
        wins = BASELINE if baseline <= paths[fewest] else fewest
        rows.append({"workers": p, "critical_paths": paths, "levels": chosen.levels, "wins": wins})
    schedules = [*fixed.values(), *hybrids[1:-1]]
    return {
        "elements": n,
        "baseline": baseline,
        "schedules": [_facts(sizes, schedule, budget) for schedule in schedules],
        "workers": rows,
    }


def _facts(sizes: ChainSizes, schedule: Schedule, budget: Budget) -> dict[str, Any]:
    """What holds for any number of workers."""
    kinds = Counter(step.kind for step in schedule.steps)
    unbounded = Budget(budget.batch_size, budget.itemsize, max(len(schedule.table), 1))
    return {
        "name": schedule.label,
        "levels": schedule.levels,
        "depth": schedule.depth,
        "mv": kinds["mv"],
        "mm": kinds["mm"],
        "multiply_adds": sum(multiply_adds(sizes, schedule, budget.batch_size)),
        "critical_path": critical_path(sizes, schedule, unbounded),
        "memory": budget.bytes(sizes, schedule),
    }


def print_explanation(facts: dict[str, Any]) -> None:
    """The facts as tables of at most 120 columns."""
    print(f"plan       {facts['file']}; multiply-adds for a batch of {facts['batch_size']}")
    if facts["memory_limit"] is not None:
        print(f"memory     a hybrid schedule takes at most {in_bytes(facts['memory_limit'])}")
    if facts["over_ranks"] is not None:
        paths = (f"{name} {quantity(count).rstrip()}" for name, count in facts["over_ranks"].items())
        print(f"ranks      critical paths on the ranks of the plan: {', '.join(paths)}")
    for position, chain in enumerate(facts["chains"]):
        print(
            f"\nchain {position}: {chain['elements']} elements; back-propagation, one VJP after another: "
            f"{quantity(chain['baseline']).rstrip()}"
        )
        for title, names in (chain["planned"] or {}).items():
            how = "filled" if title == "filled" else "by VJPs"
            line = f"  the plan's hybrid, {how}: {', '.join(names) or 'none'}"
            print(textwrap.fill(line, 118, subsequent_indent="    ", break_on_hyphens=False))
        rows = [
            (
                row["name"],
                *(str(row[name]) for name in ("depth", "mv", "mm")),
                *(quantity(row[name]).rstrip() for name in ("multiply_adds", "critical_path")),
                in_bytes(row["memory"]),
            )
            for row in chain["schedules"]
        ]
        print()
        print_table(("schedule", "depth", "mv", "mm", "all", "critical path", "memory"), rows, "<>>>>>>")
        table = [
            (
                str(row["workers"]),
                *(quantity(count).rstrip() for count in row["critical_paths"].values()),
                str(row["levels"]),
                row["wins"],
            )
            for row in chain["workers"]
        ]
        print()
        print_table(("p", "linear", "blelloch", "hybrid", "levels", "fewest"), table, ">>>>><")
