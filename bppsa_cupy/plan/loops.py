"""Compiled loops of the symbolic product: Gustavson's algorithm on patterns, rows in parallel.

Only patterns are accessed. A chunk of rows has its own workspace: a bit set of the columns in two
stages, so that a row's columns come out sorted and an empty stretch of 4096 columns costs one look.
Within one call all index arrays have one dtype, int32 or int64.
"""

from typing import Any

import numpy as np
from numba import prange, types
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.twin import twin


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


@twin(parallel=True)
def row_lengths(a_indptr, a_indices, b_indptr, b_indices, columns, chunks, lengths):
    """lengths[i], out: number of entries of row i of A·B."""
    rows = a_indptr.size - 1
    for chunk in prange(chunks):
        seen = np.full(columns, -1, np.int64)
        for i in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            length = 0
            for p in range(a_indptr[i], a_indptr[i + 1]):
                row = a_indices[p]
                for q in range(b_indptr[row], b_indptr[row + 1]):
                    if seen[b_indices[q]] != i:
                        seen[b_indices[q]] = i
                        length += 1
            lengths[i] = length


@twin(parallel=True)
def row_columns(a_indptr, a_indices, b_indptr, b_indices, columns, chunks, indptr, indices):
    """indices (indptr[rows],), out: the sorted columns of every row of A·B."""
    rows = a_indptr.size - 1
    one = np.uint64(1)
    words = (columns + 63) // 64
    for chunk in prange(chunks):
        bits = np.zeros(words, np.uint64)
        touched = np.zeros((words + 63) // 64, np.uint64)
        for i in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            for p in range(a_indptr[i], a_indptr[i + 1]):
                row = a_indices[p]
                for q in range(b_indptr[row], b_indptr[row + 1]):
                    column = np.uint64(b_indices[q])
                    word = column >> np.uint64(6)
                    bits[word] |= one << (column & np.uint64(63))
                    touched[word >> np.uint64(6)] |= one << (word & np.uint64(63))
            k = indptr[i]
            for group in range(touched.size):
                remaining = touched[group]
                touched[group] = 0
                while remaining:
                    word = np.uint64(group * 64) + trailing_zeros(remaining)
                    remaining &= remaining - one
                    these = bits[word]
                    bits[word] = 0
                    while these:
                        indices[k] = word * np.uint64(64) + trailing_zeros(these)
                        k += 1
                        these &= these - one


@twin(parallel=True)
def row_wise_map(
    a_indptr, a_indices, b_indptr, b_indices, columns, chunks, indptr, indices, row_terms, position
):
    """position (row_terms[rows],), out: where inside its output row each multiply-add goes."""
    rows = a_indptr.size - 1
    for chunk in prange(chunks):
        place = np.empty(columns, position.dtype)
        for i in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            for k in range(indptr[i], indptr[i + 1]):
                place[indices[k]] = k - indptr[i]
            term = row_terms[i]
            for p in range(a_indptr[i], a_indptr[i + 1]):
                row = a_indices[p]
                for q in range(b_indptr[row], b_indptr[row + 1]):
                    position[term] = place[b_indices[q]]
                    term += 1


@twin(parallel=True)
def term_map(
    a_indptr,
    a_indices,
    b_indptr,
    b_indices,
    columns,
    chunks,
    indptr,
    indices,
    row_terms,
    term_ptr,
    a_position,
    b_position,
):
    """term_ptr (nnz + 1,) and the positions (terms,), out; term_ptr[nnz] is left to the caller.

    The terms of an entry are in the order of A's row.
    """
    rows = a_indptr.size - 1
    for chunk in prange(chunks):
        place = np.empty(columns, np.int64)
        following = np.zeros(columns, np.int64)
        for i in range(rows * chunk // chunks, rows * (chunk + 1) // chunks):
            start = indptr[i]
            length = indptr[i + 1] - start
            for k in range(length):
                place[indices[start + k]] = k
                following[k] = 0
            for p in range(a_indptr[i], a_indptr[i + 1]):
                row = a_indices[p]
                for q in range(b_indptr[row], b_indptr[row + 1]):
                    following[place[b_indices[q]]] += 1
            term = np.int64(row_terms[i])
            for k in range(length):
                term_ptr[start + k] = term
                count = following[k]
                following[k] = term
                term += count
            for p in range(a_indptr[i], a_indptr[i + 1]):
                row = a_indices[p]
                for q in range(b_indptr[row], b_indptr[row + 1]):
                    k = place[b_indices[q]]
                    a_position[following[k]] = p
                    b_position[following[k]] = q
                    following[k] += 1
