"""bppsa-plan explain over ranks: of a recurrent layer whose steps they share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from bppsa_cupy.distributed.time_cost import best_chunk, predicted_seconds, split_steps
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import Budget
from bppsa_cupy.plan.cost import find_model
from bppsa_cupy.processors.models import estimates
from bppsa_cupy.processors.sizes import WalkSize
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.plans.text import budget_facts, print_budget, print_table, time_writer

#: The forms of cells by the names of layers.
CELLS = {"rnn": "rnn_tanh", "gru": "gru", "lstm": "lstm"}
#: How many ranks where none are given.
RANKS = (1, 2, 4, 16, 64, 256, 1024)


def add_time(parser: argparse.ArgumentParser) -> None:
    """--steps and --cell."""
    parser.add_argument(
        "--steps",
        type=cli.positive,
        metavar="T",
        help="instead of a plan: the passes of a recurrent layer of --size units whose T steps ranks share "
        "(default: 1, 2, 4, 16, 64, 256 and 1024 of them, by the model host)",
    )
    parser.add_argument("--cell", choices=tuple(CELLS), help="of that layer (default rnn)")


def run_time(arguments: argparse.Namespace) -> None:
    """Print, and write, what passes over time take over ranks."""
    for name in ("workers", "memory_limit", "balance"):
        if getattr(arguments, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise PlanError(f"{option} is of a plan's chains, and --steps of a layer over time: leave it out")
    facts = explain_time(
        arguments.cell or "rnn",
        arguments.steps,
        arguments.size or 8,
        arguments.batch_size or 16,
        model="cuda" if arguments.model == "cuda" else "host",
        ranks=arguments.ranks or RANKS,
    )
    if arguments.json is not None:
        cli.write_json(arguments.json, facts)
    print_budget(facts)
    print_time(facts, time_writer(facts))


def explain_time(
    cell: str,
    steps: int,
    units: int,
    batch_size: int,
    *,
    model: str = "host",
    ranks: Sequence[int] = RANKS,
    itemsize: int = 4,
) -> dict[str, Any]:
    """The facts of a layer's passes over ranks, as JSON holds them: in seconds, forward from rank to rank,
    back likewise and by chunks, by the chunk, the window and the groups of samples that `bp.distribute`
    takes.

    cell  "rnn", "gru" or "lstm"
    """
    size = WalkSize(FORMS[CELLS[cell]], steps, batch_size, units, itemsize)
    budget, processor = Budget(batch_size, itemsize, model=find_model(model)), estimates(model)
    rows = []
    for p in ranks:
        chunk = best_chunk(processor, budget.model.link, size, p)
        starts = split_steps(steps, p, chunk)
        held = [stop - start for start, stop in pairwise(starts)]
        found = predicted_seconds(processor, budget.model.link, size, held, chunk)
        rows.append(
            {"ranks": p, "holders": len(held), "chunk": chunk, **found._asdict(), "seconds": found.least}
        )
    what = f"layer      {cell}, {units} units, {steps:,} steps"
    return {**budget_facts(budget), "what": what, "calibrated": False, "ranks": rows}


def print_time(facts: dict[str, Any], time: Callable[[float], str]) -> None:
    """The facts as a table; `time` writes a time."""
    table = [
        (
            str(row["ranks"]),
            time(row["forward"]),
            time(row["relayed"]),
            time(row["scanned"]),
            "by chunks" if row["scanned"] < row["relayed"] else "relayed",
            *(str(row[name]) for name in ("holders", "chunk", "window", "groups")),
        )
        for row in facts["ranks"]
    ]
    print()
    heading = "p", "forward", "relayed", "by chunks", "wins", "hold steps", "chunk", "window", "groups"
    print_table(heading, table, ">>>><>>>>")
    print(
        "\n  forward: from rank to rank, one group of samples behind another. relayed: the way back\n"
        "  likewise. by chunks: reduced and expanded side by side; maps come in rounds from the ranks of a\n"
        "  window, and gradients are handed on from window to window"
    )
