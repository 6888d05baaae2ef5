"""Compiled loops on patterns: counting products, and making them by Gustavson's algorithm, rows in parallel.

Rows are bit sets. A block of columns is a matrix of uint64 words, (rows, words); bit c of word w stands for
column 64·w + c of the block. Within one call all index arrays have one dtype, int32 or int64.
"""

from typing import Any

import numpy as np
from numba import prange, types
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


@compiled(parallel=True)
def set_bits(indptr, indices, first_column, columns, bits, full):
    """Write the `columns` columns from `first_column` on into bits (rows, words), and whether a row holds all
    of them into full (rows,)."""
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
        full_row = -1
        for p in range(indptr[i], indptr[i + 1]):
            if source_full[indices[p]]:
                full_row = indices[p]
                break
        if full_row >= 0:
            bits[i] = source[full_row]
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
def count_entries(bits, full, columns, lengths, partial):
    """Count the entries of bits (rows, words) by rows into lengths (rows,), and by columns and chunks of rows
    into partial (chunks, 64·words), which is added to."""
    rows, words = bits.shape
    chunks = partial.shape[0]
    for chunk in prange(chunks):
        full_rows = np.int64(0)
        for i in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            if full[i]:
                full_rows += 1
                lengths[i] = columns
                continue
            length = np.int64(0)
            for w in range(words):
                word = bits[i, w]
                while word:
                    partial[chunk, np.uint64(64 * w) + trailing_zeros(word)] += 1
                    length += 1
                    word &= word - np.uint64(1)
            lengths[i] = length
        for column in range(columns):
            partial[chunk, column] += full_rows


# ---- products: a chunk of rows has a bit set of the columns in two stages, so that a row's columns come out
# sorted and an empty stretch of 4096 columns costs one look ----


@compiled()
def unite_row(a_indptr, a_indices, b_indptr, b_indices, b_bits, i, bits, touched):
    """Set the bits of row i of A·B, and in `touched` those of its words.

    If b_bits (rows of B, words) has no row, the rows of B are read entry by entry.
    """
    unit = np.uint64(1)
    by_words = b_bits.shape[0] > 0
    for p in range(a_indptr[i], a_indptr[i + 1]):
        row = a_indices[p]
        if by_words:
            for w in range(bits.size):
                bits[w] |= b_bits[row, w]
            continue
        for q in range(b_indptr[row], b_indptr[row + 1]):
            column = np.uint64(b_indices[q])
            word = column >> np.uint64(6)
            bits[word] |= unit << (column & np.uint64(63))
            touched[word >> np.uint64(6)] |= unit << (word & np.uint64(63))
    if by_words:
        for w in range(np.uint64(bits.size)):
            if bits[w]:
                touched[w >> np.uint64(6)] |= unit << (w & np.uint64(63))


@compiled(parallel=True)
def product_rows(
    a_indptr, a_indices, b_indptr, b_indices, b_bits, columns, chunks, lengths, starts, indices
):  # fmt: skip
    """Write the number of entries of row i of A·B into lengths[i], and the sorted columns of the row into
    `indices`, from starts[i] on. If `indices` is empty, columns are not written."""
    unit = np.uint64(1)
    words = (columns + 63) // 64
    for chunk in prange(chunks):
        bits = np.zeros(words, np.uint64)
        touched = np.zeros((words + 63) // 64, np.uint64)
        for i in range(lengths.size * chunk // chunks, lengths.size * (chunk + 1) // chunks):
            unite_row(a_indptr, a_indices, b_indptr, b_indices, b_bits, i, bits, touched)
            length = np.uint64(0)
            for group in range(touched.size):
                remaining = touched[group]
                touched[group] = 0
                while remaining:
                    word = np.uint64(group * 64) + trailing_zeros(remaining)
                    remaining &= remaining - unit
                    these = bits[word]
                    bits[word] = 0
                    if indices.size == 0:
                        length += population_count(these)
                        continue
                    while these:
                        indices[np.uint64(starts[i]) + length] = word * np.uint64(64) + trailing_zeros(these)
                        length += unit
                        these &= these - unit
            lengths[i] = length


@compiled(parallel=True)
def term_map(
    a_indptr, a_indices, b_indptr, b_indices, sizes,
    indptr, indices, row_terms, term_ptr, a_position, b_position,
):  # fmt: skip
    """Write term_ptr (nnz + 1,) and the positions (terms,). The caller writes term_ptr[nnz].

    `sizes` are the columns of B and the chunks of rows. The terms of an entry are in the order of the row of
    A. The pattern may leave out entries of A·B.
    """
    columns, chunks = sizes
    rows = a_indptr.size - 1
    for chunk in prange(chunks):
        entry_of = np.full(columns, -1, np.int64)
        following = np.zeros(columns, np.int64)
        for i in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            start = indptr[i]
            length = indptr[i + 1] - start
            for k in range(length):
                entry_of[indices[start + k]] = k
                following[k] = 0
            for p in range(a_indptr[i], a_indptr[i + 1]):
                row = a_indices[p]
                for q in range(b_indptr[row], b_indptr[row + 1]):
                    k = entry_of[b_indices[q]]
                    if k >= 0:
                        following[k] += 1
            term = np.int64(row_terms[i])
            for k in range(length):
                term_ptr[start + k] = term
                count = following[k]
                following[k] = term
                term += count
            for p in range(a_indptr[i], a_indptr[i + 1]):
                row = a_indices[p]
                for q in range(b_indptr[row], b_indptr[row + 1]):
                    k = entry_of[b_indices[q]]
                    if k >= 0:
                        a_position[following[k]] = p
                        b_position[following[k]] = q
                        following[k] += 1
            for k in range(length):
                entry_of[indices[start + k]] = -1


@compiled(parallel=True)
def masked_terms(a_indptr, a_indices, b_indptr, b_indices, sizes, indptr, indices, terms):
    """terms[i], out: the terms that entries of a pattern have in row i of A·B; `sizes` as in `term_map`."""
    columns, chunks = sizes
    for chunk in prange(chunks):
        wanted = np.zeros(columns, np.bool_)
        for i in range(terms.size * chunk // chunks, terms.size * (chunk + 1) // chunks):
            for k in range(indptr[i], indptr[i + 1]):
                wanted[indices[k]] = True
            count = 0
            for p in range(a_indptr[i], a_indptr[i + 1]):
                row = a_indices[p]
                for q in range(b_indptr[row], b_indptr[row + 1]):
                    count += wanted[b_indices[q]]
            terms[i] = count
            for k in range(indptr[i], indptr[i + 1]):
                wanted[indices[k]] = False


@compiled(parallel=True)
def least_keys(indptr, indices, keys, least):
    """least[i], out: the least of keys[j] over the entries j of row i, per sample; infinity for an empty row.

    keys (columns, samples), least (rows, samples)
    """
    for i in prange(indptr.size - 1):
        least[i] = np.inf
        for p in range(indptr[i], indptr[i + 1]):
            for sample in range(keys.shape[1]):
                least[i, sample] = min(least[i, sample], keys[indices[p], sample])
