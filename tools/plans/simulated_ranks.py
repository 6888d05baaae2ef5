"""bppsa-plan explain over ranks: of a plan, or of equal elements."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import Budget, Chain, Element, Plan
from bppsa_cupy.plan.cost import find_model
from bppsa_cupy.plan.search import searched_segments
from bppsa_cupy.plan.sizes import ChainSizes
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.plans.balance import BALANCES
from bppsa_cupy.tools.plans.simulation import SEARCHED, element_weights, print_simulation, simulate
from bppsa_cupy.tools.plans.text import budget_facts, print_budget, time_writer


def add_simulation(parser: argparse.ArgumentParser) -> None:
    """--ranks, --equal, --size and --balance."""
    parser.add_argument(
        "--ranks",
        type=cli.positive_list,
        metavar="P,P,…",
        help="simulate ranks that own their elements: times with messages, bytes sent, and memory a rank",
    )
    parser.add_argument(
        "--equal",
        type=cli.positive,
        metavar="N",
        help="instead of a plan: a chain of N equal dense elements over ranks (default: 1, 2, 4, … 1024)",
    )
    parser.add_argument(
        "--size",
        type=cli.positive,
        metavar="D",
        help="rows of an equal element, or units of a layer (default 8)",
    )
    parser.add_argument(
        "--balance", choices=BALANCES, help="what ranks have equal parts in (default: predicted seconds)"
    )


def run_simulation(arguments: argparse.Namespace) -> None:
    """Print, and write, what each schedule takes over ranks."""
    if arguments.workers is not None or arguments.memory_limit is not None:
        raise PlanError(
            "--workers and --memory-limit are of workers that share all steps, and ranks own elements: leave "
            "them out"
        )
    if arguments.equal is None and arguments.size is not None:
        raise PlanError("--size is of equal elements: give --equal N with it")
    if arguments.equal is not None and arguments.balance is not None:
        raise PlanError("--balance is of the elements of a plan, and --equal has equal ones: leave it out")
    options = cli.taken(arguments, "model", "ranks")
    if arguments.equal is not None:
        pattern = Pattern.dense(*2 * (arguments.size or 8,))
        facts = explain_equal(pattern, arguments.equal, arguments.batch_size or 1, **options)
    else:
        plan = Plan.load(arguments.file)
        facts = explain_ranks(
            plan, arguments.batch_size or plan.batch_size, **options, balance=arguments.balance or BALANCES[0]
        )
        facts = {"file": str(arguments.file), **facts}
    if arguments.json is not None:
        cli.write_json(arguments.json, facts)
    print_budget(facts)
    for position, chain in enumerate(facts["chains"]):
        print(f"\nchain {position}: {chain['elements']} elements")
        print_simulation(chain, time_writer(facts))


def explain_ranks(
    plan: Plan,
    batch_size: int,
    *,
    model: str = "ideal",
    ranks: Sequence[int],
    balance: str = BALANCES[0],
) -> dict[str, Any]:
    """The facts of a plan's chains over ranks, as JSON holds them."""
    budget = Budget(batch_size, plan.itemsize, model=find_model(model))
    chains = []
    for chain in (one.chain for one in plan.chains):
        sizes = ChainSizes(chain, searched_segments(chain))
        chains.append(simulate(sizes, budget, ranks, element_weights(chain, budget, balance)))
    return {**budget_facts(budget), "chains": chains}


def explain_equal(
    pattern: Pattern,
    n: int,
    batch_size: int,
    *,
    model: str = "ideal",
    ranks: Sequence[int] | None = None,
    itemsize: int = 4,
) -> dict[str, Any]:
    """The facts of a chain of n equal elements over ranks, as JSON holds them.

    ranks  by default 1, 2, 4, … up to n and 1024
    """
    budget = Budget(batch_size, itemsize, model=find_model(model))
    chain = Chain((Element("J", pattern, shared=False),) * n)
    sizes = ChainSizes(chain, searched_segments(chain) if n <= SEARCHED else ())
    counts = ranks or [2**k for k in range(min(n, 1024).bit_length())]
    return {**budget_facts(budget), "chains": [simulate(sizes, budget, counts, np.ones(n))]}
