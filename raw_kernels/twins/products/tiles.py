"""Matrix products whose operands are found through offsets, in tiles that stay in the processor's registers.

sums[r, v] += Σ_k a[origins[r] + steps[k]] · x[places[v] + shifts[k] : ... + a vector's length]

So the second operand's rows may lie anywhere, overlap and repeat, as the shifted planes of a convolution do:
the matrix that BLAS would be given is never written. This is the indirect convolution algorithm (Dukhan 2019)
on packed planes instead of pointers.

Law: a sum is made of blocks of DEPTH terms, each added up in the order of k, so it depends neither on the
tile it is in nor on what else is computed, nor on the number of threads.
"""

import numpy as np
from numba import types
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.twins.simd.lanes import never_inlined
from bppsa_cupy.raw_kernels.twins.simd.vectors import VECTOR_BYTES, WIDE, WORD, Vectors, data_of, loop
from bppsa_cupy.system.compiled import compiled

#: How many vectors a tile is wide: ROWS of them and one row of the second operand fill the registers.
VECTORS = 3 if WIDE else 2

#: Rows of a tile.
ROWS = 6

#: Terms added up in registers; the second operand's vectors for so many stay in the first cache.
DEPTH = 144


def _tiles(across):
    """The intrinsic that adds to a column of tiles, ROWS rows high and `across` vectors wide."""

    def emit(builder, element, a, origins, count, steps, x, places, shifts, first, end, sums, start, stride):
        vectors = Vectors(builder, element)

        def entry(array, index):
            return builder.load(builder.gep(array, [index]))

        beside = [builder.gep(x, [entry(places, WORD(v))]) for v in range(across)]

        def right(k):
            shift = entry(shifts, k)
            return [vectors.load(vectors.at(place, shift)) for place in beside]

        def add_tile(number):
            above, last = builder.mul(number, WORD(ROWS)), builder.sub(count, WORD(1))
            rows = [builder.add(above, WORD(r)) for r in range(ROWS)]
            known = [builder.select(builder.icmp_unsigned("<", row, last), row, last) for row in rows]
            pointers = [builder.gep(a, [entry(origins, row)]) for row in known]

            def left(k):
                step = entry(steps, k)
                for row in pointers:
                    yield vectors.all(entry(row, step))

            zeros = [vectors.zeros()] * (ROWS * across)
            for index, total in enumerate(vectors.add_products(first, end, zeros, left, right)):
                r, v = divmod(index, across)
                offset = builder.add(builder.mul(stride, rows[r]), WORD(v * vectors.lanes))
                target = vectors.at(sums, builder.add(start, offset))
                vectors.store(builder.fadd(vectors.load(target), total), target)
            return []

        tiles = builder.udiv(builder.add(count, WORD(ROWS - 1)), WORD(ROWS))
        loop(builder, WORD(0), tiles, [], add_tile)

    @intrinsic
    def add(typingctx, a, origins, count, steps, x, places, shifts, first, end, sums, start, stride):
        def codegen(context, builder, signature, arguments):
            arguments = [
                data_of(context, builder, kind, value) if isinstance(kind, types.Array) else value
                for kind, value in zip(signature.args, arguments, strict=True)
            ]
            emit(builder, context.get_value_type(a.dtype), *arguments)
            return context.get_dummy_value()

        index = types.uint64
        return (
            types.void(a, origins, index, steps, x, places, shifts, index, index, sums, index, index),
            codegen,
        )

    return add


_one, _two, _three = _tiles(1), _tiles(2), _tiles(3)


@compiled()
def _add_tiles(vectors, a, origins, steps, x, places, shifts, first, end, sums, start, stride):
    never_inlined()
    count = np.uint64(origins.size)
    if vectors == 3:
        _three(a, origins, count, steps, x, places, shifts, first, end, sums, start, stride)
    elif vectors == 2:
        _two(a, origins, count, steps, x, places, shifts, first, end, sums, start, stride)
    else:
        _one(a, origins, count, steps, x, places, shifts, first, end, sums, start, stride)


@compiled()
def lanes_of(itemsize):
    """Elements of a vector."""
    return VECTOR_BYTES // itemsize


@compiled()
def add_products(a, origins, steps, x, places, shifts, start, end, sums):
    """Add the terms k = start ... end - 1 to sums.

    a        element (r, k) at origins[r] + steps[k]
    x        a vector readable at every places[v] + shifts[k]
    origins, steps, places, shifts  uint64: by r, by k, by v, by k
    sums     (rows, vectors, lanes), as many rows as there are origins, up to a multiple of ROWS: what is in
             the rows after is anything afterwards
    """
    lanes, vectors = lanes_of(x.itemsize), places.size
    tiles = (vectors + VECTORS - 1) // VECTORS
    for block in range(start, end, DEPTH):
        left, right = np.uint64(block), np.uint64(min(block + DEPTH, end))
        for tile in range(tiles):
            # Tiles of nearly equal width: a narrow one has too few sums to hide their latency.
            v = vectors * tile // tiles
            _add_tiles(
                vectors * (tile + 1) // tiles - v, a, origins, steps, x, places[v:], shifts, left, right,
                sums, np.uint64(v * lanes), np.uint64(vectors * lanes),
            )  # fmt: skip
