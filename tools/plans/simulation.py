"""Schedules over p ranks, simulated: when they end, what they send, and what a rank holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from bppsa_cupy.plan import Budget, Chain, Partition, Schedule, place, rank_peaks
from bppsa_cupy.plan.algorithms import blelloch, hybrid, linear, paper_hybrid
from bppsa_cupy.plan.cost import (
    message_bytes,
    preparation_seconds,
    rank_times,
    step_seconds,
    vjp_message_seconds,
    vjp_seconds,
)
from bppsa_cupy.plan.schedule import up_sweep_levels
from bppsa_cupy.plan.search import Search
from bppsa_cupy.plan.sizes import ChainSizes
from bppsa_cupy.system.units import in_bytes
from bppsa_cupy.tools.plans.ranks import sent_in_all, sent_text
from bppsa_cupy.tools.plans.text import print_table

#: Longer chains are not searched: of these every hybrid is tried, of longer ones those near log2(n/p) levels.
SEARCHED, EVERY_HYBRID = 128, 2**14
NAMES = ("linear", "blelloch", "paper", "computed")


def simulate(sizes: ChainSizes, budget: Budget, ranks: Sequence[int], weights: np.ndarray) -> dict[str, Any]:
    """What each schedule takes over each number of ranks, as JSON holds it.

    sizes    of the chain; `searched_segments` counted where it is searched
    budget   without owners
    weights  (n,) of the elements: each rank has about as much as the others

    Times are those of `rank_times` and the longest preparation of a rank; memory is what the fullest rank
    holds of values at once (`rank_peaks`).
    """
    simulation = _Simulation(sizes, budget, weights)
    return {"elements": len(sizes.chain), "ranks": [simulation.over(p) for p in ranks]}


class _Simulation:
    """One chain, by one budget."""

    def __init__(self, sizes: ChainSizes, budget: Budget, weights: np.ndarray) -> None:
        self.sizes, self.budget, self.weights = sizes, budget, weights
        self.n = len(sizes.chain)
        self.baseline = vjp_seconds(sizes.chain, budget)
        # Made once, with the times of their steps; long ones take much memory.
        self.fixed = {"linear": linear(self.n), "blelloch": blelloch(self.n), "paper": paper_hybrid(self.n)}
        self.seconds = {name: step_seconds(sizes, one, budget) for name, one in self.fixed.items()}
        self.hybrid = lru_cache(maxsize=2 if self.n > EVERY_HYBRID else None)(self._hybrid)

    def _hybrid(self, levels: int) -> tuple[Schedule, np.ndarray]:
        schedule = hybrid(self.n, levels)
        return schedule, step_seconds(self.sizes, schedule, self.budget)

    def over(self, p: int) -> dict[str, Any]:
        """All schedules over p ranks."""
        if self.weights.size and (self.weights == self.weights[0]).all():
            partition = Partition.equal(self.n, p)
        else:
            partition = Partition.balanced(self.weights, p)
        budget = replace(self.budget, workers=p, owners=tuple(partition.owners.tolist()))
        around = preparation_seconds(self.sizes.chain, budget)
        rows = {
            name: self._facts(one, self.seconds[name], budget, around) for name, one in self.fixed.items()
        }
        quickest = min(rows, key=lambda name: rows[name]["time"])
        rows["computed"] = {**rows[quickest], "found_as": self.fixed[quickest].label}
        found = self._computed(budget, p)
        if found is not None:
            facts = self._facts(*found, budget, around)
            if facts["time"] < rows["computed"]["time"]:
                rows["computed"] = {**facts, "found_as": found[0].label}
        widest = int(self.sizes.chain.lengths.max()) * budget.batch_size * budget.itemsize
        return {
            "ranks": p,
            "bp": self.baseline + vjp_message_seconds(self.sizes.chain, budget),
            "schedules": rows,
            "pipeline_vectors": self.n / p + p,
            "pipeline_bytes": int((self.n / p + p) * widest),
        }

    def _computed(self, budget: Budget, p: int) -> tuple[Schedule, np.ndarray] | None:
        """The schedule the search finds, or the quickest of the hybrids that are tried."""
        if self.n <= SEARCHED:
            schedule = Search.of(self.sizes, budget).best(p).schedule
            return schedule, step_seconds(self.sizes, schedule, self.budget)
        most, near = up_sweep_levels(self.n), (self.n // p).bit_length() - 1
        levels = set(range(most)) if self.n <= EVERY_HYBRID else {near, near + 2}
        tried = [self.hybrid(level) for level in sorted(levels) if 0 < level < most and level != 3]
        return min(tried, key=lambda one: self._time(one[0], one[1], budget), default=None)

    def _time(self, schedule: Schedule, seconds: np.ndarray, budget: Budget) -> float:
        assert budget.owners is not None
        placement = place(schedule, budget.owners, budget.workers)
        return self._rank_times(placement, seconds, budget)

    def _rank_times(self, placement: Any, seconds: np.ndarray, budget: Budget) -> float:
        link, batch, itemsize = budget.model.link, budget.batch_size, budget.itemsize
        return rank_times(self.sizes, placement, seconds, link, batch, itemsize).seconds

    def _facts(
        self, schedule: Schedule, seconds: np.ndarray, budget: Budget, around: float
    ) -> dict[str, Any]:
        assert budget.owners is not None
        batch, itemsize, p = budget.batch_size, budget.itemsize, budget.workers
        placement = place(schedule, budget.owners, p)
        amounts = message_bytes(self.sizes, placement, batch, itemsize)
        sources = placement.sent[:, 3]
        return {
            "time": self._rank_times(placement, seconds, budget) + around,
            "sent": sent_in_all(placement, amounts),
            "most_messages": int(np.bincount(sources, minlength=p).max()),
            "most_bytes": int(np.bincount(sources, amounts, p).max()),
            "memory": int(rank_peaks(self.sizes, placement, batch, itemsize).max()),
            "jacobian_bytes": int(rank_peaks(self.sizes, placement, batch, itemsize, matrices=True).max()),
        }


def element_weights(chain: Chain, budget: Budget, balance: str) -> np.ndarray:
    """(n,) what parts of a chain are made equal in: predicted seconds of VJPs, bytes of values, or 1 each."""
    weights = np.ones(len(chain))
    for k, element in enumerate(chain.elements, 1) if balance != "elements" else ():
        batch = budget.batch_size
        if balance == "bytes":
            weights[k - 1] = element.pattern.nnz * (1 if element.shared else batch) * budget.itemsize
        else:
            moved = (chain.length(k) + chain.length(k + 1)) * batch * budget.itemsize
            seconds = budget.model.work_seconds("vjp", element.vjp_terms * batch, moved)
            weights[k - 1] = seconds + budget.model.seconds_per_call
    return weights


def print_simulation(facts: dict[str, Any], time: Callable[[float], str]) -> None:
    """The facts as tables; `time` writes a time."""
    rows = facts["ranks"]
    print("\ntime over p ranks, messages included:")
    table = []
    for row in rows:
        times = [row["schedules"][name]["time"] for name in NAMES]
        wins = "bp" if row["bp"] <= min(times) else NAMES[int(np.argmin(times))]
        found = row["schedules"]["computed"]["found_as"]
        table.append((str(row["ranks"]), time(row["bp"]), *map(time, times), wins, found))
    print_table(("p", "bp", *NAMES, "wins", "computed is"), table, ">>>>>><<")
    for name in NAMES:
        print(f"\n{name}:")
        head = ("p", "time", "a rank", "bytes", "Jacobians", "memory", "pipeline", "sent in all")
        print_table(head, list(_schedule_rows(rows, name, time)), ">>>>>>><")
    print(
        "\n  a rank: the most messages, and bytes, that one sends. Jacobians, memory: bytes the fullest\n"
        "  rank holds at once, of matrices and of all values. pipeline: of n/p + p vectors (paper, 3.6).\n"
        "  paper: the hybrid of 3 levels"
    )


def _schedule_rows(
    rows: Sequence[dict[str, Any]], name: str, time: Callable[[float], str]
) -> Iterator[tuple[str, ...]]:
    for row in rows:
        one = row["schedules"][name]
        yield (
            str(row["ranks"]),
            time(one["time"]),
            str(one["most_messages"]),
            *(in_bytes(one[key]) for key in ("most_bytes", "jacobian_bytes", "memory")),
            in_bytes(row["pipeline_bytes"]),
            sent_text(one["sent"]),
        )
