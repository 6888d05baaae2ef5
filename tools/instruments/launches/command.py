"""What a training step launches on a GPU, with its graphs and the bytes it moves: no GPU is needed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from bppsa_cupy.plan import SCHEDULES
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.instruments.launches.step import make_network, step_rows
from bppsa_cupy.tools.lines import aligned
from bppsa_cupy.tools.plan import level_count

METHODS = ("bp", *SCHEDULES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """MODEL, --prune, --batch-size, --dtype, --methods, --levels, --memory-limit, --graphs."""
    parser.add_argument("model", metavar="MODEL", help="as bppsa-train takes it")
    parser.add_argument("--prune", type=cli.fraction, metavar="F", help="prune this part of every layer")
    parser.add_argument("--batch-size", type=cli.positive, default=64, metavar="B", help="default 64")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=list(METHODS),
        help="of the backward pass; one that passes the memory limit is left out (default all)",
    )  # fmt: skip
    parser.add_argument(
        "--levels", type=level_count, default="auto", metavar="auto|N", help="of hybrid (default auto)"
    )
    parser.add_argument(
        "--memory-limit", type=cli.byte_size, metavar="BYTES",
        help="of a schedule (default: three quarters of an H200's)",
    )  # fmt: skip
    parser.add_argument("--graphs", action="store_true", help="print what each node of a graph waits for")


def make_report(arguments: argparse.Namespace) -> dict[str, Any]:
    """The object that --json writes: a row a method and phase, as `step_rows` makes them."""
    return {
        "name": arguments.name,
        "command": arguments.command,
        "rows": [row for method in _methods(arguments) for row in method],
    }


def _methods(arguments: argparse.Namespace) -> Iterator[list[dict[str, Any]]]:
    """The rows of each method that there is memory for."""
    network = make_network(arguments.model, arguments.prune, arguments.dtype)
    network.train()
    plan = network.plan(
        arguments.levels,
        batch_size=arguments.batch_size,
        memory_limit=arguments.memory_limit,
        tell=cli.warn,
    )
    network.use(plan)
    for method in arguments.methods:
        if method != "bp" and method not in plan.schedules:
            continue
        rows = step_rows(network, method, arguments.batch_size)
        if arguments.graphs:
            print(*_listed(method, rows[-1]["graphs"]), sep="\n")
        yield [{"method": method, **row} for row in rows]


def _listed(method: str, graphs: list[dict[str, Any]]) -> Iterator[str]:
    """A line a node: its number, its kernel, the nodes it waits for."""
    for number, graph in enumerate(graphs, 1):
        yield f"{method}, graph {number}:"
        for node, name in enumerate(graph["nodes"]):
            waits = [str(first) for first, behind in graph["edges"] if behind == node]
            yield f"  {node} {name}" + (f" after {', '.join(waits)}" if waits else "")


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as aligned text."""
    head = ("method", "phase", "launches", "kernels", "read", "written",
            "graphs", "nodes", "edges", "longest path")  # fmt: skip
    return "\n".join(aligned([head, *map(_line, rows)], "<<" + ">" * 8))


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    graphs = row["graphs"]
    return (
        row["method"],
        row["phase"],
        *(str(row[name]) for name in ("launches", "kernels")),
        *(f"{row[name] / 1e6:,.1f} MB" for name in ("read", "written")),
        str(len(graphs)),
        *(str(sum(len(graph[name]) for graph in graphs)) for name in ("nodes", "edges")),
        str(sum(graph["longest"] for graph in graphs)),
    )
