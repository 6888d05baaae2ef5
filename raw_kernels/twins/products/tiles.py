"""Matrix products whose operands are found through offsets, in tiles that stay in the processor's registers.

sums[r, v] += Σ_k a[origins[r] + steps[k]] · x[places[v] + shifts[k] : ... + a vector's length]

So the second operand's rows may lie anywhere, overlap and repeat, as the shifted planes of a convolution do:
the matrix that BLAS would be given is never written. This is the indirect convolution algorithm (Dukhan 2019)
on packed planes instead of pointers.

Law: a sum is made of blocks of DEPTH terms, each added up in the order of k, so it depends neither on the
tile it is in nor on what else is computed, nor on the number of threads.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.twins.simd.lanes import never_inlined
from bppsa_cupy.raw_kernels.twins.simd.processor import has
from bppsa_cupy.system.compiled import compiled

#: Bytes of a vector register, and how many vectors a tile is wide: with ROWS of them and one row of the
#: second operand they fill the registers (32 with AVX-512, else 16).
VECTOR_BYTES, VECTORS = (64, 3) if has("avx512f") else (32, 2)

#: Rows of a tile.
ROWS = 6

#: Terms added up in registers; the second operand's vectors for so many stay in the first cache.
DEPTH = 144


def _tile(vectors):
    """The intrinsic that adds to one tile ROWS rows high and `vectors` vectors wide."""

    def emit(builder, module, element, a, rows, steps, x, places, shifts, first, end, sums, start, stride):
        integer, size = ir.IntType(64), 4 if isinstance(element, ir.FloatType) else 8
        lanes = VECTOR_BYTES // size
        vector = ir.VectorType(element, lanes)

        def pointer(array, index):
            return builder.bitcast(builder.gep(array, [index]), vector.as_pointer())

        def entry(array, index):
            return builder.load(builder.gep(array, [index]))

        own = [builder.gep(a, [entry(rows, integer(r))]) for r in range(ROWS)]
        across = [builder.gep(x, [entry(places, integer(v))]) for v in range(vectors)]
        before, loop = builder.block, builder.append_basic_block("terms")
        after = builder.append_basic_block("sums")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(integer)
        k.add_incoming(first, before)
        tile = [[builder.phi(vector) for _ in range(vectors)] for _ in range(ROWS)]
        step, shift = entry(steps, k), entry(shifts, k)
        loaded = [builder.load(pointer(place, shift), align=size) for place in across]
        kind = ir.FunctionType(vector, [vector] * 3)
        name = f"llvm.fmuladd.v{lanes}{element.intrinsic_name}"
        fused = cgutils.get_or_insert_function(module, kind, name)
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
        results = []
        for r in range(ROWS):
            single = builder.insert_element(
                ir.Constant(vector, ir.Undefined), entry(own[r], step), ir.IntType(32)(0)
            )
            factor = builder.shuffle_vector(single, single, zeros)
            for v in range(vectors):
                result = builder.call(fused, [factor, loaded[v], tile[r][v]])
                tile[r][v].add_incoming(ir.Constant(vector, [0.0] * lanes), before)
                tile[r][v].add_incoming(result, loop)
                results.append(result)
        following = builder.add(k, integer(1))
        k.add_incoming(following, loop)
        builder.cbranch(builder.icmp_unsigned("<", following, end), loop, after)
        builder.position_at_end(after)
        for index, result in enumerate(results):
            r, v = divmod(index, vectors)
            offset = builder.add(builder.mul(stride, integer(r)), integer(v * lanes))
            target = pointer(sums, builder.add(start, offset))
            builder.store(builder.fadd(builder.load(target, align=size), result), target, align=size)

    @intrinsic
    def add(typingctx, a, rows, steps, x, places, shifts, first, end, sums, start, stride):
        def codegen(context, builder, signature, arguments):
            arguments = [
                context.make_array(kind)(context, builder, value).data
                if isinstance(kind, types.Array)
                else value
                for kind, value in zip(signature.args, arguments, strict=True)
            ]
            emit(builder, builder.module, context.get_value_type(a.dtype), *arguments)
            return context.get_dummy_value()

        index = types.uint64
        return types.void(a, rows, steps, x, places, shifts, index, index, sums, index, index), codegen

    return add


_one, _two, _three = _tile(1), _tile(2), _tile(3)


@compiled()
def _add_tile(vectors, a, rows, steps, x, places, shifts, first, end, sums, start, stride):
    never_inlined()
    if vectors == 3:
        _three(a, rows, steps, x, places, shifts, first, end, sums, start, stride)
    elif vectors == 2:
        _two(a, rows, steps, x, places, shifts, first, end, sums, start, stride)
    else:
        _one(a, rows, steps, x, places, shifts, first, end, sums, start, stride)


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
    rows = np.empty(ROWS, np.uint64)
    lanes, vectors, count = lanes_of(x.itemsize), places.size, origins.size
    tiles = (vectors + VECTORS - 1) // VECTORS
    for block in range(start, end, DEPTH):
        left, right = np.uint64(block), np.uint64(min(block + DEPTH, end))
        for tile in range(tiles):
            # Tiles of nearly equal width: a narrow one has too few sums to hide their latency.
            v = vectors * tile // tiles
            width, own = vectors * (tile + 1) // tiles - v, places[v:]
            for above in range(0, count, ROWS):
                for r in range(ROWS):
                    rows[r] = origins[min(above + r, count - 1)]
                _add_tile(
                    width, a, rows, steps, x, own, shifts, left, right, sums,
                    np.uint64((above * vectors + v) * lanes), np.uint64(vectors * lanes),
                )  # fmt: skip
