"""Compiled loops of exact counting: rows as the bit sets of `bit_sets`, and hashes of rows.

A row that holds all of a block's columns is marked in `full`, (rows,): a union with such a row needs no look
at the others.
"""

import numpy as np
from numba import njit, prange

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


@compiled()
def weigh_rows(bits, masks, lengths):
    """lengths (rows,), out: the weights of the columns of a row; masks (digits, words) are their bits."""
    rows, words = bits.shape
    for i in range(rows):
        lengths[i] = 0
        for plane in range(masks.shape[0]):
            length = np.uint64(0)
            for w in range(words):
                length += population_count(bits[i, w] & masks[plane, w])
            lengths[i] += np.int64(length) << plane


@njit(inline="always")
def _ripple(counters, carry, plane):
    """Add the bits of `carry` to 64 counters, from binary digit `plane` on; counters (digits,)."""
    while carry:
        digit = counters[plane]
        counters[plane] = digit ^ carry
        carry &= digit
        plane += 1


@compiled(parallel=True)
def weigh_columns(bits, full, weights, digits, chunks, counts):
    """counts (64·words,), out: the sum over the rows of weights (rows,) where the column's bit is set.

    Columns are counted 64 at a time, one word a binary digit; four rows of weight 1 are first added
    up to three words. `digits` hold the sum of all weights.
    """
    rows, words = bits.shape
    partial = np.zeros((chunks, 64 * words), np.int64)
    for chunk in prange(chunks):
        counters = np.zeros((words, digits), np.uint64)
        whole = np.int64(0)
        four = np.empty(4, np.int64)
        held = 0
        for i in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            if full[i]:
                whole += weights[i]
            elif weights[i] == 1:
                four[held] = i
                held += 1
                if held == 4:
                    held = 0
                    a, b, c, d = four
                    for w in range(words):
                        half = bits[a, w] ^ bits[b, w]
                        ones = half ^ bits[c, w]
                        twos = (bits[a, w] & bits[b, w]) | (half & bits[c, w])
                        more = ones & bits[d, w]
                        ones ^= bits[d, w]
                        _ripple(counters[w], ones, 0)
                        fours = twos & more
                        _ripple(counters[w], twos ^ more, 1)
                        _ripple(counters[w], fours, 2)
            else:
                weight, plane = weights[i], 0
                while weight:
                    if weight & 1:
                        for w in range(words):
                            _ripple(counters[w], bits[i, w], plane)
                    weight >>= 1
                    plane += 1
        for k in range(held):
            for w in range(words):
                _ripple(counters[w], bits[four[k], w], 0)
        for w in range(words):
            for plane in range(digits):
                these = counters[w, plane]
                while these:
                    column = np.uint64(64 * w) + trailing_zeros(these)
                    partial[chunk, column] += np.int64(1) << plane
                    these &= these - np.uint64(1)
        for c in range(64 * words):
            partial[chunk, c] += whole
    for c in range(64 * words):
        counts[c] = 0
        for chunk in range(chunks):
            counts[c] += partial[chunk, c]


#: The second of two hashes starts from this number, the first from 0.
SALT = np.uint64(0x5851F42D4C957F2D)


@compiled(parallel=True)
def hash_rows(indptr, indices, group, groups, chunks, lengths, hashes):
    """The set of group[column] (columns,) over each row: lengths (rows,) and hashes (rows, 2), out.

    group[column] is from 0 to groups - 1. A hash is a sum over the set, so order does not matter.
    """
    rows = indptr.size - 1
    for chunk in prange(chunks):
        seen = np.full(groups, -1, np.int64)
        for i in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            length = 0
            first = second = np.uint64(0)
            for p in range(indptr[i], indptr[i + 1]):
                g = group[indices[p]]
                if seen[g] != i:
                    seen[g] = i
                    length += 1
                    first += mix(np.uint64(0), g)
                    second += mix(SALT, g)
            lengths[i] = length
            hashes[i, 0], hashes[i, 1] = first, second


@compiled()
def group_rows(indptr, indices, group, groups, kept, new_indptr, new_indices):
    """new_indices (new_indptr[-1],), out: the set of group[column] over each of the rows `kept`."""
    seen = np.full(groups, -1, np.int64)
    for i in range(kept.size):
        k = new_indptr[i]
        for p in range(indptr[kept[i]], indptr[kept[i] + 1]):
            g = group[indices[p]]
            if seen[g] != i:
                seen[g] = i
                new_indices[k] = g
                k += 1


@compiled()
def hash_columns(indptr, indices, hashes):
    """hashes (columns, 2), out: a hash of the set of rows of each column."""
    hashes[:] = 0
    for i in range(indptr.size - 1):
        first, second = mix(np.uint64(0), i), mix(SALT, i)
        for p in range(indptr[i], indptr[i + 1]):
            hashes[indices[p], 0] += first
            hashes[indices[p], 1] += second
