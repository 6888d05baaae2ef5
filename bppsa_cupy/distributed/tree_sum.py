"""Sums of numbered terms by a binary tree, whose bits do not depend on which rank holds which terms."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.distributed.group import Group, Handle

#: The tag of a rank's first partial sum; that of the next is one more.
PARTIAL = 16


@dataclass(frozen=True)
class Node:
    """The sum of terms `start` to `start + length - 1`; `length` is a power of two, and divides `start`."""

    start: int
    length: int

    def joins(self, behind: Node) -> bool:
        """Whether the node after makes a larger one with this one."""
        return self.length == behind.length and self.start % (2 * self.length) == 0


def nodes_of(terms: range) -> list[Node]:
    """The largest nodes of which terms that follow each other consist."""
    found, start = [], terms.start
    while start < terms.stop:
        length = start & -start or 1 << terms.stop.bit_length()
        while start + length > terms.stop:
            length //= 2
        found.append(Node(start, length))
        start += length
    return found


def shares(count: int, ranks: int) -> list[range]:
    """Which of so many things each rank holds: as many as others or one more, the first rank the most."""
    return [range(start, stop) for start, stop in pairwise(-(-count * r // ranks) for r in range(ranks + 1))]


class TreeSum:
    """Sums of arrays of `size` values, each rank's own terms and then those of all ranks.

    group  None for one process
    size   values of each term

    Terms are joined by a binary tree over their numbers: two nodes of 2^k terms whose first number is a
    multiple of 2^(k + 1) make one of 2^(k + 1), and what is left is added from the right. Law: the sum
    depends on the terms alone, to the bit, and not on who holds them.

    Each rank adds up a slice of all ranks' nodes, and all gather the slices: a rank sends and receives some 2
    `size` values, where its terms are one node, in place of every rank's `size`.
    """

    def __init__(self, group: Group | None, device: Device, dtype: np.dtype, size: int) -> None:
        self._group, self._device, self._dtype, self.size = group, device, dtype, size
        self._ranks, self._rank = (1, 0) if group is None else (group.size, group.rank)
        self._spare: list[Array] = []
        self._stack: list[tuple[Node, Array]] = []
        cuts = [size * rank // self._ranks for rank in range(self._ranks + 1)]
        self._slices = [slice(start, stop) for start, stop in pairwise(cuts)]

    def add(self, number: int, *parts: Array) -> None:
        """Take one of this rank's terms, which come by rising numbers: flat arrays, one after another."""
        node, held = Node(number, 1), None
        while self._stack and self._stack[-1][0].joins(node):
            before, sums = self._stack.pop()
            if held is None:
                for span, part in self._spans(parts):
                    sums[span] += part
            else:
                sums += held
                self._spare.append(held)
            node, held = Node(before.start, 2 * before.length), sums
        if held is None:
            held = self._spare.pop() if self._spare else self._device.empty((self.size,), self._dtype)
            for span, part in self._spans(parts):
                held[span] = part
        self._stack.append((node, held))

    def finish(self, terms: int) -> Array:
        """(size,) the sum of terms 0 to `terms` - 1, on every rank, up to the next `add`; collective."""
        if self._ranks == 1:
            own, self._stack = self._stack, []
            return self._joined(own)
        assert self._group is not None
        part = self._finish_slice(self._group, terms)
        if not self._spare:
            self._spare.append(self._device.empty((self.size,), self._dtype))
        result = self._spare[-1]
        self._group.allgather(part, result, [span.stop - span.start for span in self._slices])
        return result

    def _finish_slice(self, group: Group, terms: int) -> Array:
        """This rank's slice of the sum."""
        own, self._stack = self._stack, []
        device, mine = self._device, self._slices[self._rank]
        group.finish()
        for other, span in enumerate(self._slices):
            if other != self._rank:
                for index, (_, array) in enumerate(own):
                    group.isend(array[span], other, PARTIAL + index)
        arriving: list[tuple[Node, Array, Handle | None]] = []
        for other, held in enumerate(shares(terms, self._ranks)):
            for index, node in enumerate(nodes_of(held)):
                if other == self._rank:
                    arriving.append((node, own[index][1][mine].copy(), None))
                else:
                    array = device.empty((mine.stop - mine.start,), self._dtype)
                    arriving.append((node, array, group.post(array, other, PARTIAL + index)))
        for _, _, handle in arriving:
            if handle is not None:
                handle.wait()
        part = self._joined([(node, array) for node, array, _ in arriving], spare=False)
        group.finish()
        self._spare.extend(array for _, array in own)
        return part

    def _joined(self, nodes: list[tuple[Node, Array]], *, spare: bool = True) -> Array:
        """The sum of nodes that follow each other from term 0 on, in one of their arrays."""
        stack: list[tuple[Node, Array]] = []
        released = []
        for node, array in nodes:
            while stack and stack[-1][0].joins(node):
                before, sums = stack.pop()
                sums += array
                released.append(array)
                node, array = Node(before.start, 2 * before.length), sums
            stack.append((node, array))
        while len(stack) > 1:
            _, behind = stack.pop()
            stack[-1][1][...] += behind
            released.append(behind)
        result = stack[0][1]
        if spare:
            self._spare.extend([*released, result])
        return result

    def _spans(self, parts: tuple[Array, ...]) -> list[tuple[slice, Array]]:
        found, start = [], 0
        for part in parts:
            found.append((slice(start, start + part.size), part))
            start += part.size
        assert start == self.size, "the parts of a term are those of every term"
        return found
