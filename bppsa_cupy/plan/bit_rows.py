"""Compiled loops over the rows of patterns as bit sets: what exact counting needs.

A block of columns is a matrix of uint64 words, (rows, words); bit c of word w stands for column
64·w + c of the block.
"""

import numpy as np
from numba import prange

from bppsa_cupy.plan.loops import population_count, trailing_zeros
from bppsa_cupy.raw_kernels.twin import twin


@twin(parallel=True)
def set_bits(indptr, indices, first_column, bits):
    """bits (rows, words), out: the pattern's columns from `first_column` on."""
    rows, words = bits.shape
    for i in prange(rows):
        bits[i] = 0
        for p in range(indptr[i], indptr[i + 1]):
            column = indices[p] - first_column
            if 0 <= column < 64 * words:
                bits[i, column >> 6] |= np.uint64(1) << np.uint64(column & 63)


@twin(parallel=True)
def unite_rows(indptr, indices, source, bits):
    """bits (rows, words), out: row i is the union of the rows of `source` that row i of A meets."""
    rows, words = bits.shape
    for i in prange(rows):
        bits[i] = 0
        for p in range(indptr[i], indptr[i + 1]):
            row = np.uint64(indices[p])
            for w in range(words):
                bits[i, w] |= source[row, w]


@twin(parallel=True)
def count_bits(bits, chunks, row_lengths, column_counts):
    """Add the bits of every row to row_lengths (rows,), of every column to column_counts (64·words,)."""
    rows, words = bits.shape
    counts = np.zeros((chunks, 64 * words), np.int64)
    for chunk in prange(chunks):
        for i in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            length = np.uint64(0)
            for w in range(words):
                these = bits[i, w]
                length += population_count(these)
                while these:
                    counts[chunk, np.uint64(64 * w) + trailing_zeros(these)] += 1
                    these &= these - np.uint64(1)
            row_lengths[i] += length
    for chunk in range(chunks):
        for c in range(64 * words):
            column_counts[c] += counts[chunk, c]
