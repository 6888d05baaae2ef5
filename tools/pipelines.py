"""Pipelines on the command line."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from bppsa_cupy.distributed import Group
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.pipeline import SCHEDULES, Pipeline, Trace, balanced_ppv
from bppsa_cupy.system.files import check_writable
from bppsa_cupy.tools import cli

#: Options that say how a pipeline runs, which --ppv makes.
OPTIONS = ("pipeline", "micro_batches", "predict", "non_pipelined_after", "trace")


def add_pipeline(parser: argparse.ArgumentParser) -> None:
    """--ppv, --pipeline and what belongs to them."""
    group = parser.add_argument_group(
        "pipeline", "stages of the network that work on several batches; one process acts for all, or "
        "mpiexec -n STAGES starts a process per stage",
    )  # fmt: skip
    add_ppv(group)
    group.add_argument(
        "--pipeline",
        choices=tuple(SCHEDULES),
        metavar="SCHEDULE",
        help=f"{', '.join(SCHEDULES)} (default stale: with stale weights)",
    )
    group.add_argument(
        "--micro-batches", type=cli.positive, help="of a batch, for schedules that have them (default 1)"
    )
    group.add_argument(
        "--predict", action="store_true", default=None,
        help="forward with predicted weights where they are stale, by sgd's momentum",
    )  # fmt: skip
    group.add_argument(
        "--non-pipelined-after", type=cli.positive, metavar="ITERATIONS",
        help="go on without the pipeline after so many steps: hybrid training",
    )  # fmt: skip
    group.add_argument("--trace", type=Path, help="JSON of when each action ran, for ui.perfetto.dev")


def add_ppv(parser: argparse._ActionsContainer) -> None:
    """--ppv."""
    parser.add_argument(
        "--ppv", type=placement, metavar="P,…",
        help="cut behind these layers, convolutions and linear ones counted from 1, as 7,13; or balanced:K "
        "for K cuts by multiply-adds",
    )  # fmt: skip


def placement(text: str) -> tuple[int, ...] | int:
    """The argument type of a pipeline placement: "7,13", or "balanced:2", which is the number of cuts."""
    if found := re.fullmatch(r"balanced:(\d+)", text.strip()):
        return int(found[1])
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no placement: give layer numbers, as 7,13, or balanced:K"
        ) from None


def placed(network: Sequential, given: tuple[int, ...] | int) -> tuple[int, ...]:
    """The placement that --ppv means for a network. Raises BppsaError."""
    return balanced_ppv(network, given) if isinstance(given, int) else given


def make_pipeline(arguments: argparse.Namespace, network: Sequential, group: Group | None) -> Pipeline | None:
    """The pipeline that the arguments ask for; None without --ppv. Says how it runs.

    Raises BppsaError where an option is given that is of pipelines alone, or does not go with them.
    """
    given = cli.given(arguments, *OPTIONS)
    if arguments.ppv is None:
        if given:
            name = "--" + next(iter(given)).replace("_", "-")
            raise BppsaError(f"{name} is of pipelines: give --ppv with it, where the network is cut")
        return None
    for name in ("ranks", "plan", "clip"):
        if getattr(arguments, name) is not None:
            raise BppsaError(f"--{name} does not go with --ppv: leave one of them out")
    if arguments.trace is not None:
        check_writable(arguments.trace)
        given["trace"] = Trace()
    result = Pipeline(network, placed(network, arguments.ppv), given.pop("pipeline", "stale"), group, **given)
    if result.network.writes:
        how = "simulated by one process" if group is None else f"on {group.size} ranks"
        stages = "; ".join(result.placement.describe(stage) for stage in range(result.stages))
        print(f"pipeline {result.schedule} {how}: stages with layers {stages}", flush=True)
    return result


def save_trace(pipeline: Pipeline, path: Path) -> None:
    """Write what all ranks did; collective."""
    assert pipeline.trace is not None
    trace = pipeline.trace if pipeline.group is None else pipeline.trace.gathered(pipeline.group)
    if pipeline.network.writes and trace.rows:  # none where training had ended before
        trace.save(path)
