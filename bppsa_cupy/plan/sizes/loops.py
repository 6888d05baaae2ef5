"""Compiled loops of exact counting: rows as the bit sets of `bit_sets`, and hashes of rows.

A row that holds all of a block's columns is marked in `full`, (rows,): a union with such a row needs no look
at the others.
"""

import numpy as np
from numba import prange

from bppsa_cupy.plan.bit_sets import mix, population_count, trailing_zeros
from bppsa_cupy.system.compiled import compiled


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
