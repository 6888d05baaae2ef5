"""Rows of patterns as bit sets, and hashes: what the compiled loops of counting and multiplying share.

A block of columns is a matrix of uint64 words, (rows, words); bit c of word w stands for column 64·w + c of
the block.
"""

from typing import Any

import numpy as np
from numba import njit, prange, types
from numba.extending import intrinsic

from bppsa_cupy.system.compiled import compiled


@intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """Number of zero bits below the lowest one of a uint64 that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    return types.uint64(types.uint64), generate


@intrinsic
def population_count(typing_context: Any, word: Any) -> Any:
    """Number of one bits of a uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@njit(inline="always")
def mix(state, value):
    """A hash of a hash and a number, both uint64 (the steps of splitmix64)."""
    state = (state ^ np.uint64(value)) + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@compiled(parallel=True)
def set_bits(indptr, indices, first_column, columns, bits, full):
    """bits (rows, words), out: the `columns` columns from `first_column` on.

    full  (rows,), out: whether a row holds all of them
    """
    rows, words = bits.shape
    for i in prange(rows):
        bits[i] = 0
        for p in range(indptr[i], indptr[i + 1]):
            column = indices[p] - first_column
            if 0 <= column < columns:
                bits[i, column >> 6] |= np.uint64(1) << np.uint64(column & 63)
        length = np.uint64(0)
        for w in range(words):
            length += population_count(bits[i, w])
        full[i] = length == columns
