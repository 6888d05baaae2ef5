"""Numbers and tables of what `bppsa-plan` tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bppsa_cupy.plan import Budget
from bppsa_cupy.system.units import in_bytes, quantity
from bppsa_cupy.tools.lines import aligned


def print_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], alignment: str) -> None:
    """Aligned columns; `alignment` has a letter a column, as format specifications have."""
    print("\n".join(aligned([head, *rows], alignment, indent=2)))


def budget_facts(budget: Budget) -> dict[str, Any]:
    """What times were reckoned with, as JSON holds it."""
    name = budget.model.name
    return {
        "model": name,
        "calibrated": budget.model.calibrated,
        "unit": "multiply-adds" if name == "ideal" else "seconds",
        "batch_size": budget.batch_size,
        "itemsize": budget.itemsize,
        "memory_limit": budget.memory,
    }


def print_budget(facts: Mapping[str, Any]) -> None:
    """The plan's file, or what stands for it, and what times were reckoned with."""
    ideal = facts["unit"] == "multiply-adds"
    what = facts.get("what", "equal dense elements, no plan")
    print(f"plan       {facts['file']}" if "file" in facts else what)
    print(
        f"model      {facts['model']}{'' if ideal or facts['calibrated'] else ', uncalibrated'}: "
        + ("time is multiply-adds, nothing else costs" if ideal else "predicted seconds")
        + f"; a batch of {facts['batch_size']}, {facts['itemsize']} bytes a value"
    )
    if facts["memory_limit"] is not None:
        print(f"memory     a computed schedule takes at most {in_bytes(facts['memory_limit'])}")


def time_writer(facts: Mapping[str, Any]) -> Callable[[float], str]:
    """What writes a time in the unit of the facts."""
    return _multiply_adds if facts["unit"] == "multiply-adds" else _seconds


def _multiply_adds(count: float) -> str:
    return quantity(count).rstrip()


def _seconds(seconds: float) -> str:
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
