"""Commands over ranks: how they start, what the ranks agree on, and which one of them speaks."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from bppsa_cupy.distributed import (
    Group,
    RankSequential,
    TimeSequential,
    distribute,
    guard,
    launched_rank,
    launched_size,
)
from bppsa_cupy.distributed.choice import TRANSPORTS
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan import Partition
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.plans.balance import bounds

#: What ranks may share: the layers of a network, or the steps of its sequences.
WAYS = ("layers", "time")


def add_ranks(parser: argparse.ArgumentParser) -> None:
    """--ranks, --partition and --transport."""
    group = parser.add_argument_group("ranks", "processes that mpiexec -n P starts, each with a device")
    group.add_argument(
        "--ranks",
        choices=WAYS,
        help="what the ranks share: the network's layers, or the steps of its sequences",
    )
    group.add_argument(
        "--partition",
        type=partition,
        metavar="0,…,LAYERS",
        help="rank r holds the layers from number r on up to the next number (default: the plan's, "
        "or the one predicted to be the quickest)",
    )
    group.add_argument(
        "--transport",
        choices=TRANSPORTS,
        default="host",
        help="of arrays on GPUs: through pinned memory of the host (default), by an MPI that knows CUDA, "
        "or by NCCL",
    )


def partition(text: str) -> Partition:
    """The argument type of a partition: "0,4,9"."""
    try:
        return Partition(bounds(text))
    except BppsaError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(main: Callable[[argparse.Namespace], None], arguments: argparse.Namespace) -> int:
    """The exit code of `main`, run by every rank where ranks are asked for: an error on one ends all."""

    def over_ranks(arguments: argparse.Namespace) -> None:
        with guard():
            main(arguments)

    def refuse(arguments: argparse.Namespace) -> None:
        raise BppsaError(
            f"mpiexec started {launched_size()} processes, and without --ranks each would do the same work "
            "and write the same files: give --ranks layers, --ppv for a pipeline, or start one process"
        )

    if _together(arguments):
        return cli.run(over_ranks, arguments)
    if launched_size() == 1:
        return cli.run(main, arguments)
    return cli.run(refuse, arguments) if launched_rank() == 0 else 1


def _together(arguments: argparse.Namespace) -> bool:
    """Whether ranks work together: on what --ranks says, or as the stages of a pipeline."""
    return arguments.ranks is not None or (arguments.ppv is not None and launched_size() > 1)


def make_group(arguments: argparse.Namespace, agreed: Callable[[], dict[str, Any]]) -> Group | None:
    """The ranks, which must have been given equal arguments; None where no ranks are asked for.

    agreed  gives what else must be equal on all of them

    Raises BppsaError where an option is given that is of ranks alone.
    """
    if arguments.ranks is None and arguments.partition is not None:
        raise BppsaError("--partition says which rank holds which layers: give --ranks layers with it")
    if not _together(arguments):
        return None
    group = Group(device=arguments.device, transport=arguments.transport)
    given = {name: value for name, value in sorted(vars(arguments).items()) if not callable(value)}
    group.agree(arguments=given, **agreed())
    return group


def over_ranks(
    network: Sequential, group: Group, partition: Partition | None, over: str
) -> RankSequential | TimeSequential:
    """The network over the group's ranks; says which layers each holds."""
    result = distribute(network, group, partition, over=over)
    if isinstance(result, TimeSequential):
        if result.writes:
            print(f"{group.size} ranks with equal parts of the steps", flush=True)
    elif result.writes:
        parts = (result.partition.part(rank) for rank in range(group.size))
        held = (f"{part.start} to {part.stop - 1}" if part else "none" for part in parts)
        print(f"{group.size} ranks with layers {'; '.join(held)}", flush=True)
    return result
