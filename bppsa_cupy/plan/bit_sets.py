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


# ---- exact counting: a union with a row that is `full` needs no look at the others ----


@compiled(parallel=True)
def unite_rows(indptr, indices, source, source_full, columns, bits, full):
    """bits (rows, words) and full (rows,), out: row i is the union of the rows of `source` it meets."""
    rows, words = bits.shape
    for i in prange(rows):
        found = -1
        for p in range(indptr[i], indptr[i + 1]):
            if source_full[indices[p]]:
                found = indices[p]
                break
        if found >= 0:
            bits[i] = source[found]
            full[i] = True
            continue
        bits[i] = 0
        for p in range(indptr[i], indptr[i + 1]):
            row = np.uint64(indices[p])
            for w in range(words):
                bits[i, w] |= source[row, w]
        length = np.uint64(0)
        for w in range(words):
            length += population_count(bits[i, w])
        full[i] = length == columns


@compiled(parallel=True)
def weigh(bits, full, row_weights, column_weights, lengths, partial):
    """Add up the weights of the entries of bits (rows, words), by rows and by columns.

    lengths  (rows,), out: the column weights of each row
    partial  (chunks, 64·words), in and out: the row weights of each column, by chunks of rows
    """
    rows, words = bits.shape
    chunks = partial.shape[0]
    total = column_weights.sum()
    for chunk in prange(chunks):
        of_full_rows = np.int64(0)
        for i in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            length = np.int64(0)
            if full[i]:
                of_full_rows += row_weights[i]
                length = total
            else:
                for w in range(words):
                    word = bits[i, w]
                    while word:
                        column = np.uint64(64 * w) + trailing_zeros(word)
                        partial[chunk, column] += row_weights[i]
                        length += column_weights[column]
                        word &= word - np.uint64(1)
            lengths[i] = length
        for column in range(partial.shape[1]):
            partial[chunk, column] += of_full_rows


#: The second of two hashes starts from this number, the first from 0.
SALT = np.uint64(0x5851F42D4C957F2D)


@compiled(parallel=True)
def hash_rows(indptr, indices, group, hashes):
    """hashes (rows, 2), out: sums over the entries of a row of hashes of group[column]."""
    for i in prange(indptr.size - 1):
        first = second = np.uint64(0)
        for p in range(indptr[i], indptr[i + 1]):
            first += mix(np.uint64(0), group[indices[p]])
            second += mix(SALT, group[indices[p]])
        hashes[i, 0], hashes[i, 1] = first, second
