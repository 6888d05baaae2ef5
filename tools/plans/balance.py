"""Partitions of a network's layers: given, or balanced by what is asked for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from bppsa_cupy.distributed.balance import layer_multiply_adds, layer_seconds
from bppsa_cupy.errors import PlanError
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan import Partition
from bppsa_cupy.tools import cli

#: What parts are made equal in, the default first.
BALANCES = ("multiply-adds", "measured", "bytes", "elements")


def add_partition(parser: argparse.ArgumentParser) -> None:
    """--ranks, --partition and --balance."""
    parser.add_argument(
        "--ranks", type=cli.positive, metavar="P", help="plan for P ranks, each with layers of its own"
    )
    parser.add_argument(
        "--partition",
        type=bounds,
        metavar="0,I,…,N",
        help="rank r has the layers from the r-th of these on, before the next one (default: balanced)",
    )
    parser.add_argument(
        "--balance",
        choices=BALANCES,
        help="make equal: multiply-adds of a training step (default), its measured seconds, bytes of the "
        "Jacobians' values, or numbers of chain elements",
    )


def bounds(text: str) -> tuple[int, ...]:
    """The argument type of a partition: "0,4,9"."""
    try:
        return tuple(int(bound) for bound in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no partition: give integers as 0,4,9") from None


def make_partition(
    network: Sequential,
    ranks: int | None,
    given: Sequence[int] | None,
    balance: str | None,
    batch_size: int,
) -> Partition | None:
    """The partition that the options of `add_partition` ask for; None where they ask for none.

    Raises PlanError where they contradict each other, or the partition does not cover the network.
    """
    if given is not None:
        if balance is not None:
            raise PlanError("--partition and --balance were given: a partition is given or balanced")
        partition = Partition(tuple(given))
        partition.check(len(network), partition.ranks if ranks is None else ranks, "layers")
        return partition
    if ranks is None:
        if balance is not None:
            raise PlanError("--balance was given without --ranks: say how many ranks share the layers")
        return None
    if balance == "elements":
        return _equal_elements(network, ranks)
    if balance == "bytes":
        return Partition.balanced(_jacobian_bytes(network, batch_size), ranks)
    if balance == "measured":
        return Partition.balanced(layer_seconds(network, batch_size), ranks)
    return Partition.balanced(layer_multiply_adds(network.architecture), ranks)


def _equal_elements(network: Sequential, ranks: int) -> Partition:
    """Equal numbers of elements: each part begins with one, and layers without one go with what is before.

    A residual block, whose elements stay together, makes parts as equal as they can be.
    """
    items = [element.item for chain in network.chains() for element in chain.elements]
    layers, counts = np.unique(np.array(items, np.int64), return_counts=True)
    alone = bool((counts == 1).all())
    cuts = (Partition.equal(layers.size, ranks) if alone else Partition.balanced(counts, ranks)).bounds
    starts = [*layers.tolist(), len(network)]
    return Partition((0, *(starts[cut] if cut else 0 for cut in cuts[1:-1]), len(network)))


def _jacobian_bytes(network: Sequential, batch_size: int) -> np.ndarray:
    """(layers,) bytes of the values of each layer's Jacobian."""
    found = np.zeros(len(network))
    for chain in network.chains():
        for element in chain.elements:
            width = 1 if element.shared else batch_size
            found[element.item] += element.pattern.nnz * width * network.dtype.itemsize
    return found
