"""Commands over ranks: how they start, what the ranks agree on, and which one of them speaks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bppsa_cupy.distributed import (
    BatchSequential,
    Group,
    RankSequential,
    TimeSequential,
    accumulate,
    distribute,
    guard,
    launched_size,
)
from bppsa_cupy.distributed.guard import import_mpi
from bppsa_cupy.errors import BppsaError, DistributedError
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan import Partition
from bppsa_cupy.tools import cli


@contextmanager
def together() -> Iterator[None]:
    """Let an error of one of several processes end all of them, a usage error too: MPI begins here."""
    if launched_size() == 1:
        yield
        return
    try:
        import_mpi()
    except DistributedError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    with guard():
        yield


def run_command(main: Callable[[argparse.Namespace], None], arguments: argparse.Namespace) -> int:
    """The exit code of `main`, run by every rank where ranks are asked for: an error on one ends all."""

    def over_ranks(arguments: argparse.Namespace) -> None:
        with guard():
            if not _together(arguments):
                raise BppsaError(
                    f"mpiexec started {launched_size()} processes, and without --ranks each would do the "
                    "same work and write the same files: give --ranks layers, --ppv for a pipeline, or start "
                    "one process"
                )
            main(arguments)

    alone = launched_size() == 1 and not _together(arguments)
    return cli.run_command(main if alone else over_ranks, arguments)


def _together(arguments: argparse.Namespace) -> bool:
    """Whether ranks work together: on what --ranks says, or as the stages of a pipeline."""
    return arguments.ranks is not None or (arguments.ppv is not None and launched_size() > 1)


def make_group(arguments: argparse.Namespace, agreed: Callable[[], dict[str, Any]]) -> Group | None:
    """Make the group of ranks, or return None if the arguments ask for no ranks.

    All ranks must have equal arguments and equal results of `agreed`. Raises BppsaError for an option that
    applies only to ranks.
    """
    if arguments.ranks in (None, "batch") and arguments.partition is not None:
        raise BppsaError("--partition requires --ranks layers")
    is_replicated = arguments.ranks in (None, "batch") and arguments.ppv is None
    if arguments.micro_batch is not None and not is_replicated:
        raise BppsaError(
            "--micro-batch needs --ranks batch, or one process: give --ranks batch, or leave --ranks out; "
            "for a pipeline give --micro-batches"
        )
    if not _together(arguments):
        return None
    group = Group(device=arguments.device, transport=arguments.transport)
    options = {name: value for name, value in vars(arguments).items() if not callable(value)}
    group.agree(**{f"--{name.replace('_', '-')}": value for name, value in options.items()}, **agreed())
    return group


def in_micro_batches(
    network: Sequential, group: Group | None, arguments: argparse.Namespace
) -> BatchSequential:
    """The network by micro-batches, of a rank's part of a batch by default; says of which size."""
    micro_batch = arguments.micro_batch
    if group is None:
        return accumulate(network, micro_batch)
    micro_batch = micro_batch or -(-arguments.batch_size // group.size)
    result = distribute(network, group, over="batch", micro_batch=micro_batch)
    assert isinstance(result, BatchSequential)
    if result.writes:
        print(f"{group.size} parts of a batch, by micro-batches of {micro_batch} samples", flush=True)
    return result


def over_ranks(
    network: Sequential, group: Group, partition: Partition | None, over: str
) -> RankSequential | TimeSequential:
    """The network over the group's ranks; says which layers each holds."""
    result = distribute(network, group, partition, over=over)
    assert not isinstance(result, BatchSequential)
    if isinstance(result, TimeSequential):
        if result.writes:
            print(f"{group.size} ranks with equal parts of the steps", flush=True)
    elif result.writes:
        parts = (result.partition.part(rank) for rank in range(group.size))
        held = (f"{part.start} to {part.stop - 1}" if part else "none" for part in parts)
        print(f"{group.size} ranks with layers {'; '.join(held)}", flush=True)
    return result
