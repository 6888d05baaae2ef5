"""Products of blocks by a term list, for one sample: loops unrolled for the sizes of the blocks."""

from functools import cache, partial

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.twins.simd.vectors import (
    VECTOR_BYTES,
    WIDE,
    WORD,
    Vectors,
    call_named,
    data_of,
    loop,
)
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled

#: Vectors of sums that stay in registers; the others hold B's row and A's number.
SUMS = 28 if WIDE else 12
#: What a multiply-add costs beside an element of `spans.LEAST`, and each block beside them.
MULTIPLY_ADD, BLOCK = 1, 8


@cache
def block_products(rows, inner, columns, a_transposed, c_transposed):
    """The compiled product by a term list over blocks of A (rows, inner) and B (inner, columns), row-major.

    a_transposed  A's blocks are stored as (inner, rows)
    c_transposed  C's blocks are stored as (columns, rows)
    """
    down, across = (1, rows) if a_transposed else (inner, 1)
    sum_block = _sum_of_block((rows, inner, columns), (down, across), c_transposed)

    @compiled()
    def blocks(start, end, term_ptr, a_position, b_position, c_start, c_stride, a, b, c):
        for block in range(start, end):
            first, last = np.uint64(term_ptr[block]), np.uint64(term_ptr[block + np.uint64(1)])
            place, stride = np.uint64(c_start[block]), np.uint64(c_stride[block])
            sum_block(first, last, a_position, b_position, a, b, c, place, stride)

    spans = spans_of(blocks)
    work = MULTIPLY_ADD * rows * inner * columns + BLOCK

    @compiled()
    def product(term_ptr, a_position, b_position, c_start, c_stride, a, b, c, c_blocks, terms):
        spans(work * terms, c_blocks, (term_ptr, a_position, b_position, c_start, c_stride, a, b, c))

    return product


def _sum_of_block(sizes, steps, c_transposed):
    """An intrinsic: the block of C at `place`, its stored rows `stride` apart, is the sum of terms `first`
    to `last`.

    sizes  rows, inner, columns
    steps  between rows, and between columns, of A's block
    """
    rows, inner, columns = sizes

    @intrinsic
    def sum_of_block(typingctx, first, last, a_position, b_position, a, b, c, place, stride):
        def codegen(context, builder, signature, arguments):
            kinds = signature.args
            first, last, *arrays, c_place, stride = arguments
            starts = [data_of(context, builder, *pair) for pair in zip(kinds[2:7], arrays, strict=True)]
            element = context.get_value_type(kinds[4].dtype)
            lanes = VECTOR_BYTES // (4 if kinds[4].dtype == types.float32 else 8)
            pieces = [
                (column, Vectors(builder, element, min(lanes, columns - column)))
                for column in range(0, columns, lanes)
            ]

            def start_of(positions, term, size):
                position = builder.load(builder.gep(positions, [term]))
                return builder.mul(
                    builder.zext(position, WORD) if position.type != WORD else position, WORD(size)
                )

            def add_block(panel, term, *sums):
                sums = list(sums)
                a_start = start_of(starts[0], term, rows * inner)
                b_start = start_of(starts[1], term, inner * columns)
                for k in range(inner):
                    right = [
                        vectors.load(vectors.at(starts[3], builder.add(b_start, WORD(k * columns + column))))
                        for column, vectors in pieces
                    ]
                    for i, row in enumerate(panel):
                        index = builder.add(a_start, WORD(row * steps[0] + k * steps[1]))
                        factor = builder.load(builder.gep(starts[2], [index]))
                        for j, (_, vectors) in enumerate(pieces):
                            total = sums[i * len(pieces) + j]
                            sums[i * len(pieces) + j] = call_named(
                                builder, "llvm.fmuladd", vectors.all(factor), right[j], total
                            )
                return sums

            def store(vectors, value, row, column):
                if not c_transposed:
                    index = builder.add(c_place, builder.mul(stride, WORD(row)))
                    vectors.store(value, vectors.at(starts[4], builder.add(index, WORD(column))))
                    return
                for lane in range(vectors.lanes):
                    index = builder.add(c_place, builder.mul(stride, WORD(column + lane)))
                    number = builder.extract_element(value, ir.IntType(32)(lane))
                    builder.store(number, builder.gep(starts[4], [builder.add(index, WORD(row))]))

            height = max(1, SUMS // len(pieces))
            for top in range(0, rows, height):
                panel = range(top, min(rows, top + height))
                zeros = [vectors.zeros() for _ in panel for _, vectors in pieces]
                sums = iter(loop(builder, first, last, zeros, partial(add_block, panel)))
                for row in panel:
                    for column, vectors in pieces:
                        store(vectors, next(sums), row, column)
            return context.get_dummy_value()

        word = types.uint64
        return types.void(word, word, a_position, b_position, a, b, c, word, word), codegen

    return sum_of_block
