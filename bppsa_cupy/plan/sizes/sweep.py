"""Sizes of all products a_j ⋯ a_2·a_1 that start with one pattern, by rows as bit sets."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numba
import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan import bit_sets
from bppsa_cupy.plan.sizes import loops
from bppsa_cupy.plan.sizes.equal_rows import EqualRows, GroupedPattern
from bppsa_cupy.plan.sizes.pattern_sizes import PatternSizes

#: Bytes of one set of bit rows; wider products are counted in blocks of columns.
BLOCK_BYTES = 2**24


def sweep(
    equal_rows: EqualRows, patterns: Sequence[Pattern], ends: Collection[int]
) -> dict[int, PatternSizes]:
    """The sizes of patterns[end - 1] ⋯ patterns[0] for each of `ends`, which are above 1.

    One union of rows for each entry of a pattern, equal rows and columns taken once. Memory grows with
    the rows and columns alone. Where products repeat (powers of one pattern that has filled in), they
    are one object.
    """
    columns = equal_rows.columns(patterns[0])
    factors = [equal_rows.of(patterns[0], columns)]
    for pattern in patterns[1 : max(ends)]:
        factors.append(equal_rows.of(pattern, factors[-1].rows))
    most_rows = max(1, *(factor.rows.groups for factor in factors))
    width = 64 * max(1, BLOCK_BYTES // (8 * most_rows))
    rows = {end: factors[end - 1].rows for end in ends}
    lengths = {end: np.zeros(rows[end].groups, np.int64) for end in ends}
    totals = {end: np.zeros(columns.groups, np.int64) for end in ends}
    numbers = {end: [id(rows[end])] for end in ends}
    for first in range(0, columns.groups, width):
        span = slice(first, min(first + width, columns.groups))
        block = _Block.of(factors[0], span)
        for end, factor in enumerate(factors[1:], 2):
            block = block.times(factor)
            if end in ends:
                block.count(columns.sizes[span])
                lengths[end] += block.lengths
                totals[end][span] = block.totals
                numbers[end].append(block.number)
    made: dict[tuple[int, ...], PatternSizes] = {}
    for end in sorted(ends):
        if (key := tuple(numbers[end])) not in made:
            row_lengths, column_counts = lengths[end][rows[end].group], totals[end][columns.group]
            made[key] = PatternSizes(
                (row_lengths.size, column_counts.size), row_lengths, column_counts, False
            )
    return {end: made[tuple(numbers[end])] for end in ends}


class _Block:
    """Some columns of one product, a row for each group of its rows.

    number   of factors, where more of the last one change nothing: of those that do
    lengths  (row groups,) entries of each row, once counted
    totals   (columns,) entries of each column, once counted
    """

    lengths: np.ndarray
    totals: np.ndarray

    def __init__(self, factor: GroupedPattern, number: int, columns: int) -> None:
        self.factor, self.number, self.columns = factor, number, columns
        self._bits = np.empty((factor.rows.groups, -(-columns // 64)), np.uint64)
        self._full = np.empty(factor.rows.groups, np.bool_)
        self._settled = self._counted = False

    @classmethod
    def of(cls, factor: GroupedPattern, span: slice) -> _Block:
        """The columns `span` of a single pattern."""
        block = cls(factor, 1, span.stop - span.start)
        bit_sets.set_bits(factor.indptr, factor.indices, span.start, block.columns, block._bits, block._full)
        return block

    def times(self, factor: GroupedPattern) -> _Block:
        """The product of one more factor; itself where the product is what it was."""
        if self._settled and factor is self.factor:
            return self
        result = _Block(factor, self.number + 1, self.columns)
        loops.unite_rows(
            factor.indptr, factor.indices, self._bits, self._full, self.columns, result._bits, result._full
        )
        self._settled = factor is self.factor and np.array_equal(result._bits, self._bits)
        return self if self._settled else result

    def count(self, column_sizes: np.ndarray) -> None:
        """Set `lengths` and `totals`; column_sizes (columns,) say for how many each column stands."""
        if self._counted:
            return
        weights, each = _coprime(column_sizes)
        self.lengths = np.empty(self._full.size, np.int64)
        loops.weigh_rows(self._bits, _binary_digits(weights), self.lengths)
        self.lengths *= each
        weights, each = _coprime(self.factor.rows.sizes)
        totals = np.empty(64 * self._bits.shape[1], np.int64)
        digits = int(weights.sum()).bit_length() + 1
        loops.weigh_columns(self._bits, self._full, weights, digits, numba.get_num_threads(), totals)
        self.totals = totals[: self.columns] * each
        self._counted = True


def _coprime(sizes: np.ndarray) -> tuple[np.ndarray, int]:
    """Sizes by their greatest common divisor, and that."""
    divisor = max(1, int(np.gcd.reduce(sizes)))
    return sizes // divisor, divisor


def _binary_digits(weights: np.ndarray) -> np.ndarray:
    """(digits, words) uint64: bit c of row d is binary digit d of weights[c]."""
    digits = int(weights.max(initial=1)).bit_length()
    padded = np.zeros((digits, -(-weights.size // 64) * 64), np.uint8)
    padded[:, : weights.size] = (weights >> np.arange(digits)[:, None]) & 1
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)
