"""Figure 10: the FLOP of every step of every schedule, beside the baseline's gradient operators.

All numbers are for one sample and come from patterns alone: nothing is multiplied, so schedules that a
plan left out, and the full network's, are counted too. A multiply-add is two FLOP.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import PlanError
from bppsa_cupy.layers import LAYERS, Layer
from bppsa_cupy.layers.residual import BRANCHES
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.plan import Budget, Chain, Plan, Schedule
from bppsa_cupy.plan.algorithms import blelloch, every_hybrid, hybrid_of_at_most, linear
from bppsa_cupy.plan.counts import shortest
from bppsa_cupy.plan.schedule import Step
from bppsa_cupy.plan.sizes import ChainSizes
from bppsa_cupy.system.units import quantity
from bppsa_cupy.tools.lines import print_table
from bppsa_cupy.tools.pictures.picture_file import picture
from bppsa_cupy.tools.plans.report import element_facts
from bppsa_cupy.tools.reproduction.curves import picture_path, write_result

#: The name of the paper's hand-picked schedule among the others.
PAPER = "paper's hybrid"

#: That of the schedule with the shortest critical path, for as many workers as it can use.
COMPUTED = "computed"

#: Color and marker of each kind of step.
STYLES = {"mv": ("tab:blue", "o"), "mm": ("tab:orange", "s"), "bp": ("tab:green", "o")}
LABELS = {"mv": "matrix × vector", "mm": "matrix × matrix", "bp": "gradient operator of bp"}


def run(arguments: argparse.Namespace) -> None:
    """Count every schedule's steps, print them, and write figure10.json and figure10.png."""
    path = picture_path(arguments)
    facts = flops(Plan.load(arguments.plan), full=not arguments.planned_only)
    print(facts["unit"])
    for network in facts["networks"]:
        for position, chain in enumerate(network["chains"]):
            print(f"\n{network['network']} network, chain {position}: {len(chain['elements'])} elements")
            _print_summary(chain)
    write_result(arguments, get_device("host"), facts)
    draw_flops(facts, path)


def flops(plan: Plan, *, full: bool = True) -> dict[str, Any]:
    """What the figure shows, as JSON holds it.

    full  whether the network without its masks is counted too, where there are any and all its layers
          are the library's own

    The hybrid schedule is the plan's, all its elements filled, for the full network as well; the computed
    one is each network's own.
    """
    layers = _rebuilt_layers(plan.network.get("layers"))
    described = plan.network.get("layers", [])
    pruned = any(name.endswith("_mask") for layer in described for name in layer)
    chains = tuple(chain.chain for chain in plan.chains)
    terms = [[element.vjp_terms for element in chain.elements] for chain in chains]
    networks = []
    if pruned and layers is not None:
        training = plan.network.get("mode") != "evaluation"
        whole = Architecture(layers, plan.network["input_shape"], training)
        terms = [
            [e.pattern.nnz if known is None else known for e, known in zip(chain.elements, own, strict=True)]
            for chain, own in zip(chains, whole.vjp_multiply_adds(), strict=True)
        ]
        if full:
            networks.append(_network("full", plan, whole.chains(), terms))
    networks.insert(0, _network("pruned" if pruned else "full", plan, chains, terms))
    return {"unit": "FLOP of one sample, two a multiply-add", "networks": networks}


def _network(
    name: str, plan: Plan, chains: Sequence[Chain], terms: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """terms: multiply-adds of the gradient operator of each element of each chain."""
    found = []
    for position, chain in enumerate(chains):
        sizes = ChainSizes(chain, blelloch(len(chain)).out)
        named = _schedules(plan, position, sizes)
        found.append(
            {
                "elements": element_facts(chain),
                "baseline": _baseline(chain, terms[position]),
                "schedules": [_schedule(label, schedule, sizes) for label, schedule in named.items()],
            }
        )
    return {"network": name, "chains": found}


def _schedules(plan: Plan, position: int, sizes: ChainSizes) -> dict[str, Schedule]:
    """Every schedule of a chain by name: those that follow from its length, the plan's own hybrid, and the
    one with the shortest critical path."""
    n = len(sizes.chain)
    named = {"linear": linear(n), "blelloch": blelloch(n)}
    if "hybrid" in plan.schedules:
        named["hybrid"] = replace(plan.schedule(position, "hybrid"), vjps=())
    named[PAPER] = hybrid_of_at_most(n, 3)
    unbounded = Budget(1, plan.itemsize, max(2, len(sizes.chain) ** 2))
    named[COMPUTED] = shortest(sizes, every_hybrid(n), unbounded)
    return named


def _schedule(label: str, schedule: Schedule, sizes: ChainSizes) -> dict[str, Any]:
    work = [2 * sizes.multiply_adds(step) for step in schedule.steps]
    critical, longest = critical_steps(schedule, work)
    steps = [
        {
            "level": step.level,
            "begin": step.begin,
            "split": step.split,
            "end": step.end,
            "kind": step.kind,
            "product": sizes.kind(step) if step.kind == "mm" else "csr_mv",
            "flop": flop,
            "dense_flop": 2 * _dense_multiply_adds(sizes.chain, step),
            "critical": is_critical,
        }
        for step, flop, is_critical in zip(schedule.steps, work, critical, strict=True)
    ]
    return {
        "name": label,
        "levels": schedule.levels,
        "depth": schedule.depth,
        "flop": sum(work),
        "critical_path_flop": longest,
        "largest_step_flop": max(work, default=0),
        "steps": steps,
    }


def critical_steps(schedule: Schedule, work: Sequence[int]) -> tuple[list[bool], int]:
    """Which steps lie on a longest chain of steps each of which needs the one before, and its length.

    work  of each step, in the schedule's order, exact integers
    """
    needs = [[maker for maker in makers if maker >= 0] for makers in schedule.makers.tolist()]
    until = [0] * len(work)
    behind = list(work)
    for position, operands in enumerate(needs):
        until[position] = work[position] + max((until[operand] for operand in operands), default=0)
    for position in reversed(range(len(work))):
        for operand in needs[position]:
            behind[operand] = max(behind[operand], work[operand] + behind[position])
    longest = max(until, default=0)
    critical = [u + b - w == longest for u, b, w in zip(until, behind, work, strict=True)]
    return critical, longest


def _dense_multiply_adds(chain: Chain, step: Step) -> int:
    """The multiply-adds of a step whose matrices are dense: figure 10's horizontal axis."""
    rows = chain.length(step.end)
    inner = chain.length(step.split)
    return rows * inner * (1 if step.kind == "mv" else chain.length(step.begin))


def _baseline(chain: Chain, terms: Sequence[int]) -> list[dict[str, Any]]:
    """The gradient operators ordinary back-propagation runs for v(2), …, v(n), from the last layer on.

    A convolution's is a dense transposed convolution, a linear layer's a dense product, whatever the mask,
    as in the paper (by their kept weights' lists where the layers of a plan cannot be made anew); every other
    operator has a multiply-add for each entry of the Jacobian.
    """
    return [
        {
            "name": element.name,
            "kind": "bp",
            "flop": 2 * own,
            "dense_flop": 2 * element.pattern.shape[0] * element.pattern.shape[1],
        }
        for element, own in zip(chain.elements[:-1], terms, strict=False)
    ]


def _rebuilt_layers(described: Any) -> list[Layer] | None:
    """The layers that a plan's JSON describes, without masks; None where one is not the library's own."""
    if not described or any(layer["type"] not in LAYERS for layer in described):
        return None
    return [_rebuilt(layer) for layer in described]


def _rebuilt(described: Mapping[str, Any]) -> Layer:
    arguments = {
        name: _rebuilt_layers(value) or [] if name in BRANCHES else value
        for name, value in described.items()
        if name not in ("type", "input_shape") and not name.endswith("_mask")
    }
    return LAYERS[described["type"]](**arguments)


def _print_summary(chain: Mapping[str, Any]) -> None:
    baseline = [operator["flop"] for operator in chain["baseline"]]
    all_of_it, largest = sum(baseline), max(baseline, default=0)
    rows = [
        ("baseline (bp)", str(len(baseline)), quantity(all_of_it), quantity(all_of_it), quantity(largest))
    ]
    rows += [
        (
            schedule["name"],
            str(schedule["depth"]),
            quantity(schedule["flop"]),
            quantity(schedule["critical_path_flop"]),
            quantity(schedule["largest_step_flop"]),
        )
        for schedule in chain["schedules"]
    ]
    print_table(("schedule", "levels", "work", "critical path", "largest step"), rows, "<>>>>")


# ---- picture ----


def draw_flops(facts: Mapping[str, Any], path: Path) -> None:
    """Write the picture of the facts of `flops`: a row per network, a column per schedule.

    Filled marks are steps on the critical path, with their levels unless all steps are; hollow ones are
    off it. Steps of no FLOP do not show on a logarithmic axis and are left out. Raises PlanError where
    there is no step, and BppsaError as `picture` does.
    """
    networks = facts["networks"]
    names = list(dict.fromkeys(s["name"] for n in networks for c in n["chains"] for s in c["schedules"]))
    if not names:
        raise PlanError("the plan has no chain, and so no step to draw")
    size = 1.2 + 3.7 * len(names), 1.5 + 3.6 * len(networks)
    options = {"figsize": size, "layout": "constrained", "sharex": True, "sharey": True, "squeeze": False}
    with picture(path, len(networks), len(names), save={"dpi": 120}, **options) as (figure, grid):
        for row, network in zip(grid, networks, strict=True):
            for axes, name in zip(row, names, strict=True):
                _draw_panel(axes, network, name)
                axes.set_title(f"{name}, {network['network']} network", fontsize=10)
            row[0].set_ylabel("FLOP of one sample")
        for axes in grid[-1]:
            axes.set_xlabel("FLOP if the Jacobians were dense")
        figure.legend(handles=_handles(), loc="outside lower center", ncols=5, frameon=False, fontsize=9)


def _draw_panel(axes: Any, network: Mapping[str, Any], name: str) -> None:
    axes.set(xscale="log", yscale="log")
    axes.grid(True, linewidth=0.3, alpha=0.6)
    levels: dict[tuple[int, int], list[str]] = {}
    points = list(_points(network, name))
    serial = all(critical for kind, _, critical, _ in points if kind != "bp")
    for kind, point, critical, level in points:
        color, marker = STYLES[kind]
        face = color if critical else "none"
        size = 8 if kind == "bp" else 5.5
        axes.plot(*point, marker, color=color, markerfacecolor=face, markersize=size, alpha=0.8)
        if critical and not serial:
            levels.setdefault(point, []).append(level)
    for turn, (point, labels) in enumerate(sorted(levels.items())):
        # Neighbours' labels go above and below by turns.
        offset = (0, 5) if turn % 2 == 0 else (0, -12)
        axes.annotate(
            _short(labels), point, textcoords="offset points", xytext=offset, ha="center", fontsize=7
        )


def _points(network: Mapping[str, Any], name: str) -> Iterator[tuple[str, tuple[int, int], bool, str]]:
    """Kind, (dense FLOP, FLOP), whether on the critical path, and level of each mark of a panel."""
    for chain in network["chains"]:
        for operator in chain["baseline"]:
            if operator["flop"]:
                yield "bp", (operator["dense_flop"], operator["flop"]), False, ""
        for schedule in chain["schedules"]:
            for step in schedule["steps"] if schedule["name"] == name else ():
                if step["flop"]:
                    point = step["dense_flop"], step["flop"]
                    yield step["kind"], point, step["critical"], f"L{step['level']}"


def _short(labels: list[str]) -> str:
    """The levels of one mark; the first and the last where there are many."""
    distinct = list(dict.fromkeys(labels))
    return ",".join(distinct) if len(distinct) < 3 else f"{distinct[0]}…{distinct[-1]}"


def _handles() -> list[Any]:
    from matplotlib.lines import Line2D

    handles = []
    for kind, critical in (("mv", True), ("mv", False), ("mm", True), ("mm", False), ("bp", False)):
        color, marker = STYLES[kind]
        face = color if critical else "none"
        label = LABELS[kind] + (", critical" if critical else "")
        handles.append(
            Line2D([], [], linestyle="", marker=marker, color=color, markerfacecolor=face, label=label)
        )
    return handles
