"""What passes over time take on several ranks, and the chunk length and the groups of samples by which they
take the least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import sub
from typing import NamedTuple

from bppsa_cupy.plan.cost_model import Link
from bppsa_cupy.processors.models import Processor
from bppsa_cupy.timescan import WalkSize

#: By what a chunk length may be slower than the quickest where more ranks hold steps by it.
NEARLY = 1.08


def split_steps(steps: int, ranks: int, chunk: int) -> tuple[int, ...]:
    """Where the steps of each rank begin, and T: equal numbers of chunks, on as many ranks as there are
    chunks."""
    chunks = -(-steps // chunk)
    holders = min(ranks, chunks)
    return (*(-(-chunks * rank // holders) * chunk for rank in range(holders)), steps)


class Predicted(NamedTuple):
    """What passes over time take: forward from rank to rank, back likewise or by chunks on all ranks, and by
    which window; and into how many groups of samples they are cut."""

    forward: float
    relayed: float
    scanned: float
    window: int
    groups: int

    @property
    def least(self) -> float:
        """That of the quicker way back."""
        return min(self.relayed, self.scanned)


def samples_of_group(size: WalkSize, lanes: int, groups: int) -> int:
    """Those of the largest of so many groups, of whole blocks of lanes."""
    return size.batch if groups == 1 else -(-size.batch // (lanes * groups)) * lanes


def possible_groups(model: Processor, batch: int, ranks: int) -> list[int]:
    """Numbers of groups that a batch can be cut into, which ranks take one after another: 1, and on the host
    those of equal whole numbers of lane blocks. A batch that does not fill its blocks is not cut, so that
    each sample goes by the same products as without groups."""
    lanes = model.group_lanes
    if ranks == 1 or not lanes or batch % lanes:
        return [1]
    blocks = batch // lanes
    return sorted({-(-blocks // own) for own in range(1, blocks + 1)}) or [1]


def relayed_seconds(
    model: Processor, link: Link, size: WalkSize, held: Sequence[int], verb: str, groups: int
) -> float:
    """Seconds of a walk that goes from rank to rank in `groups` groups of samples: the first group passes all
    ranks, then the others follow at the pace of the rank with the most steps."""
    own = replace(size, batch=samples_of_group(size, model.group_lanes, groups))
    message = link.seconds(own.walks * own.state * own.itemsize) if len(held) > 1 else 0.0
    walks = {steps: model.walk_seconds(replace(own, steps=steps), verb, 1) for steps in set(held)}
    first = sum(walks[steps] for steps in held) + (len(held) - 1) * message
    return first + (groups - 1) * (max(walks.values()) + message)


def windows(ranks: int) -> list[int]:
    """Sizes of windows: 1, 2, 4, ... up to the first that holds all ranks."""
    return [2**k for k in range((ranks - 1).bit_length() + 1)]


def exchange_seconds(
    link: Link, launch: float, ranks: int, maps: int, map_bytes: int, gradient_bytes: int, window: int
) -> float:
    """Seconds that ranks wait for each other between reduction and expansion, without the scan itself.

    maps    of a rank, at most
    window  number of ranks whose maps each rank scans, itself first. The maps of those that follow in the
            walk come in log2(window) rounds; the gradient after them is handed on from window to window

    Whether all boundaries are finite is agreed on by a collective call, in rounds that tell its name and
    rounds that tell the flags.
    """
    rounds = sum(link.seconds(maps * min(reach, ranks - reach) * map_bytes) for reach in windows(window)[:-1])
    handed = -(-ranks // window) - 1
    agreed = 2 * (ranks - 1).bit_length() * link.latency
    return rounds + handed * (link.seconds(gradient_bytes) + launch) + agreed


def best_exchange(
    link: Link,
    launch: float,
    ranks: int,
    maps: int,
    map_bytes: int,
    gradient_bytes: int,
    most: int | None = None,
) -> tuple[float, int]:
    """The least `exchange_seconds` by a window of at most `most` ranks, and the window."""
    return min(
        (exchange_seconds(link, launch, ranks, maps, map_bytes, gradient_bytes, window), window)
        for window in windows(ranks)
        if most is None or window <= most
    )


def predicted_seconds(
    model: Processor,
    link: Link,
    size: WalkSize,
    held: Sequence[int],
    chunk: int,
    most: int | None = None,
    groups: int | None = None,
) -> Predicted:
    """What the way forward takes from rank to rank, and the way back likewise and by chunks on all of them.

    size    of the whole walk
    held    the steps of each rank, in the order in which the walk meets them
    most    ranks of a window, at most; as many as there are where None
    groups  of samples; where None those by which both ways together take the least

    By chunks the ranks reduce their own ones side by side, but for the walk's first, whose map nobody needs;
    each scans over its window, and expands its own chunks.
    """
    if groups is None:
        every = possible_groups(model, size.batch, len(held))
        found = [predicted_seconds(model, link, size, held, chunk, most, number) for number in every]
        return min(found, key=lambda one: one.forward + one.least)
    forward, relayed = (
        relayed_seconds(model, link, size, held, verb, groups) for verb in ("forward", "backward")
    )
    part = replace(size, batch=samples_of_group(size, model.group_lanes, groups))
    state = part.walks * part.state
    reduced = expanded = 0.0
    for steps, first in {(steps, int(not rank)) for rank, steps in enumerate(held)}:
        own = replace(part, steps=steps)
        chunks = own.chunks(chunk)
        if chunks > first:
            reduced = max(reduced, model.reduce_seconds(own, chunk, first))
        expanded = max(expanded, model.walk_seconds(own, "backward", chunks))
    scanned = reduced + model.scan_seconds(part, size.chunks(chunk)) + expanded
    map_bytes = state * ((size.state + 1) * size.itemsize + 4)
    maps = -(-max(held) // chunk)
    exchanged, window = best_exchange(
        link, model.launch, len(held), maps, map_bytes, state * size.itemsize, most
    )
    of_group = scanned + exchanged + 3 * model.launch + model.check
    return Predicted(forward, relayed, groups * of_group, window, groups)


def best_chunk(model: Processor, link: Link, size: WalkSize, ranks: int) -> int:
    """The chunk length by which the quicker way back over so many ranks is predicted nearly the quickest:
    of those within `NEARLY`, one that most ranks hold steps by, of these where samples go in groups one of
    equal shares, and of these the one with the quickest scan.

    There are two chunks at least, where there are steps enough: on one rank alone there is no split.
    """
    shared = [-(-size.steps // (ranks * many)) for many in (*range(1, 9), *(2**k for k in range(4, 11)))]
    longest = max(1, -(-size.steps // 2))
    lengths = sorted({min(chunk, longest) for chunk in (*shared, *size.chunk_lengths())})
    fitting = [chunk for chunk in lengths if model.lack(size, "backward", chunk) is None] or lengths
    found = []
    for chunk in fitting:
        starts = split_steps(size.steps, ranks, chunk)
        held = list(map(sub, starts[1:], starts))
        ways = predicted_seconds(model, link, size, held, chunk)
        share = max(held) if ways.groups > 1 else 0
        found.append((ways.least, -len(held), share, ways.scanned, chunk))
    quickest = min(found)[0]
    return min(one[1:] for one in found if one[0] <= NEARLY * quickest)[-1]
