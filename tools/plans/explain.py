"""What each schedule of a plan's chains costs on p workers, and from which p a scan is worth it."""

from __future__ import annotations

import argparse
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import Budget, Chain, ChainPlan, Plan, Schedule
from bppsa_cupy.plan.algorithms import blelloch, linear, paper_hybrid
from bppsa_cupy.plan.cost import (
    MODELS,
    ScheduleCost,
    find_model,
    preparation_seconds,
    schedule_cost,
    vjp_seconds,
)
from bppsa_cupy.plan.search import MOST_ELEMENTS, Search, searched_segments
from bppsa_cupy.plan.sizes import ChainSizes
from bppsa_cupy.system.files import check_writable
from bppsa_cupy.system.units import in_bytes
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.plans.simulated_ranks import add_simulation, run_simulation
from bppsa_cupy.tools.plans.text import budget_facts, print_budget, print_table, time_writer
from bppsa_cupy.tools.plans.time_ranks import add_time, run_time

#: The schedules that are not computed.
FIXED: dict[str, Callable[[int], Schedule]] = {
    "linear": linear,
    "blelloch": blelloch,
    "paper": paper_hybrid,
}
COMPUTED = "computed"
BASELINE = "bp"


def add_explain(commands: Any) -> None:
    """The sub-command `explain`."""
    parser = commands.add_parser(
        "explain",
        help="what each schedule costs on p workers, which wins, and from which p a scan pays",
        description="For p = 1, 2, 4, … workers: the time of the serial scan, of algorithm 1, of the paper's "
        "hand-picked schedule and of the computed one, the lower bound, and which wins.",
    )
    parser.add_argument(
        "file", type=Path, nargs="?", metavar="FILE", help="a plan; or give --equal, or --steps"
    )
    add_simulation(parser)
    add_time(parser)
    parser.add_argument(
        "--model",
        choices=tuple(MODELS),
        default="ideal",
        help="of a worker: ideal counts multiply-adds (default); host and cuda predict seconds, by the "
        "constants that bppsa-bench calibrate measured, or else by estimates",
    )
    parser.add_argument(
        "--workers",
        type=cli.positive_list,
        metavar="P,P,…",
        help="default: 1, 2, 4, … and the chain's length",
    )
    parser.add_argument("--batch-size", type=cli.positive, metavar="B", help="default: the plan's")
    parser.add_argument(
        "--memory-limit", type=cli.byte_size, metavar="BYTES", help="of a computed schedule (default: none)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers here")
    parser.set_defaults(run=run_explain)


def run_explain(arguments: argparse.Namespace) -> None:
    """Print, and write, what each schedule costs."""
    if arguments.json is not None:
        check_writable(arguments.json)
    if sum(given is not None for given in (arguments.file, arguments.equal, arguments.steps)) != 1:
        raise PlanError(
            "give the FILE of a plan, or --equal N for a chain of N equal elements, or --steps T for a "
            "recurrent layer"
        )
    if arguments.steps is not None:
        run_time(arguments)
        return
    if arguments.cell is not None:
        raise PlanError("--cell is of a layer over time: give --steps T with it")
    if arguments.equal is not None or arguments.ranks is not None:
        run_simulation(arguments)
        return
    if arguments.balance is not None or arguments.size is not None:
        raise PlanError("--balance and --size are of simulated ranks: give --ranks P,P,… with them")
    options = cli.taken(arguments, "model", "workers", "batch_size", "memory_limit")
    facts = explain(Plan.load(arguments.file), **options, progress=True)
    facts = {"file": str(arguments.file), **facts}
    if arguments.json is not None:
        cli.write_json(arguments.json, facts)
    print_explanation(facts)


def explain(
    plan: Plan,
    *,
    model: str = "ideal",
    workers: Sequence[int] | None = None,
    batch_size: int | None = None,
    memory_limit: int | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """The facts, as JSON holds them: times in seconds, of the ideal machine in multiply-adds.

    workers       which p; by default 1, 2, 4, … and n, the chain's length
    batch_size    the plan's by default
    memory_limit  bytes of a computed schedule's values, patterns and maps

    Raises PlanError for an unknown model, and for a chain of more than MOST_ELEMENTS.
    """
    batch = plan.batch_size if batch_size is None else batch_size
    machine = find_model(model)
    budget = Budget(batch, plan.itemsize, model=machine, memory=memory_limit)
    return {
        **budget_facts(budget),
        "chains": [
            {
                **_Explained(chain.chain, budget, progress).report(workers or _powers(len(chain.chain))),
                "planned": _planned(chain),
            }
            for chain in plan.chains
        ],
    }


def _planned(chain: ChainPlan) -> dict[str, list[str]] | None:
    """Which elements the plan's hybrid schedule fills, and which it crosses by VJPs; None without one."""
    if "hybrid" not in chain.schedules:
        return None
    schedule = chain.schedules["hybrid"]
    names = [element.name for element in chain.chain.elements]
    crossed = sorted({step.split for step in schedule.steps if step.kind == "vjp"})
    read = {begin for step in schedule.steps for begin, end in (step.left, step.right) if begin == end - 1}
    filled = sorted(read - {0, *crossed})
    return {"filled": [names[k - 1] for k in filled], "vjps": [names[k - 1] for k in crossed]}


def _powers(n: int) -> list[int]:
    """1, 2, 4, … below n, and n."""
    return [2**k for k in range((n - 1).bit_length())] + [n] if n > 1 else [1]


class _Explained:
    """One chain, by one model."""

    def __init__(self, chain: Chain, budget: Budget, progress: bool) -> None:
        if len(chain) > MOST_ELEMENTS:
            raise PlanError(
                f"a chain of {len(chain)} elements is too long to search: explain takes up to {MOST_ELEMENTS}"
            )
        self.chain, self.budget, self.segments = chain, budget, searched_segments(chain)
        self.sizes = ChainSizes(chain, self.segments, progress=progress)
        self.search = Search.of(self.sizes, budget)
        self.fixed = {name: make(len(chain)) for name, make in FIXED.items()}
        self.preparation = preparation_seconds(chain, budget)
        self.baseline = vjp_seconds(chain, budget)

    def report(self, workers: Sequence[int]) -> dict[str, Any]:
        unbounded = self.search.best().schedule
        schedules = {**self.fixed, COMPUTED: unbounded}
        rows = [self._on(p) for p in workers]
        return {
            "elements": len(self.chain),
            "segments": len(self.segments),
            "considered": len(self.search.candidates),
            "baseline": self.baseline,
            "preparation": self.preparation,
            "shortest_critical_path": self.search.reach.length,
            "least_work": self.search.reach.least_work,
            "schedules": [self._facts(name, schedule) for name, schedule in schedules.items()],
            "workers": rows,
            "scan_beats_bp_from": self._first_win(max(workers)),
        }

    def _facts(self, name: str, schedule: Schedule) -> dict[str, Any]:
        """What holds for any number of workers."""
        cost = self._cost(schedule, 1)
        kinds = Counter(step.kind for step in schedule.steps)
        return {
            "name": name,
            "levels": schedule.levels,
            "depth": schedule.depth,
            "mv": kinds["mv"],
            "mm": kinds["mm"],
            "multiply_adds": cost.multiply_adds,
            "work": sum(step.seconds for step in cost.steps),
            "critical_path": cost.critical_path,
            "memory": self.budget.bytes(self.sizes, schedule),
        }

    def _on(self, p: int) -> dict[str, Any]:
        """All schedules on p workers."""
        around = self._around(p)
        best = self.search.best(p)
        times = {name: self._cost(schedule, p).seconds + around for name, schedule in self.fixed.items()}
        times[COMPUTED] = best.seconds + around
        quickest = min(times, key=lambda name: times[name])
        return {
            "workers": p,
            "times": times,
            "lower_bound": self.search.lower_bound(p) + around,
            "wins": BASELINE if self.baseline <= times[quickest] else quickest,
            "computed": {**self._facts(COMPUTED, best.schedule), "found_as": best.schedule.label},
        }

    def _cost(self, schedule: Schedule, p: int) -> ScheduleCost:
        return schedule_cost(self.sizes, schedule, replace(self.budget, workers=p))

    def _around(self, p: int) -> float:
        """What p workers share the preparation to, evenly, an element each at the least."""
        return self.preparation / min(p, max(len(self.chain), 1))

    def _first_win(self, most: int) -> int | None:
        """The fewest workers, at most `most`, on which the computed schedule beats back-propagation."""
        for p in range(1, most + 1):
            around = self._around(p)
            # The bound is known at once, the best of the class is not.
            if self.search.lower_bound(p) + around < self.baseline:
                if self.search.best(p).seconds + around < self.baseline:
                    return p
        return None


def print_explanation(facts: dict[str, Any]) -> None:
    """The facts as tables of at most 120 columns."""
    print_budget(facts)
    for position, chain in enumerate(facts["chains"]):
        _print_chain(position, chain, time_writer(facts))


def _print_chain(position: int, chain: dict[str, Any], time: Callable[[float], str]) -> None:
    print(
        f"\nchain {position}: {chain['elements']} elements; back-propagation, one VJP after another: "
        f"{time(chain['baseline'])}"
    )
    if chain["preparation"]:
        print(
            f"  times include the Jacobians' values and the vectors moved, {time(chain['preparation'])} on "
            "one worker"
        )
    if chain["planned"] is not None:
        for title, names in zip(("filled", "by VJPs"), chain["planned"].values(), strict=True):
            line = f"  the plan's hybrid, {title}: {', '.join(names) or 'none'}"
            print(textwrap.fill(line, 118, subsequent_indent="    ", break_on_hyphens=False))
    columns = ("depth", "mv", "mm", "work", "critical path", "memory")
    rows = [(_title(one), *_cells(one, time)) for one in chain["schedules"]]
    print()
    print_table(("schedule", *columns), rows, "<>>>>>>")
    print()
    head = ("p", *FIXED, COMPUTED, "bound", "wins")
    print_table(
        (*head, *columns[:1], "mm", *columns[3:]), list(_worker_rows(chain["workers"], time)), "<>>>>><>>>>>"
    )
    print(
        "\n  bound: max(work / p, depth); no schedule over the "
        f"{chain['segments']} segments searched has less work or a shorter\n  critical path. "
        f"computed: best of {chain['considered']} schedules; the columns behind `wins` are its own"
    )
    first = chain["scan_beats_bp_from"]
    print(
        "  the scan beats back-propagation "
        + (f"from p = {first} on" if first else f"for no p up to {chain['workers'][-1]['workers']}")
    )


def _worker_rows(rows: Sequence[dict[str, Any]], time: Callable[[float], str]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        depth, _, *cells = _cells(row["computed"], time)
        times = [time(row["times"][name]) for name in (*FIXED, COMPUTED)]
        yield (str(row["workers"]), *times, time(row["lower_bound"]), row["wins"], depth, *cells)


def _title(schedule: dict[str, Any]) -> str:
    if schedule["name"] == "paper":
        return f"paper: hybrid of {schedule['levels']} levels"
    return "computed, any number of workers" if schedule["name"] == COMPUTED else str(schedule["name"])


def _cells(one: dict[str, Any], time: Callable[[float], str]) -> tuple[str, ...]:
    counts = (str(one[name]) for name in ("depth", "mv", "mm"))
    return (*counts, time(one["work"]), time(one["critical_path"]), in_bytes(one["memory"]))
