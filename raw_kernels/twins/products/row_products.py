"""Matrix products of a few samples: lanes run over the rows of the matrix, so that one sample fills them.

A sum is made in the order of the columns from its first value on, as `lane_products.multiply` makes it: the
same bits, whichever way a sample goes.
"""

import numpy as np
from numba import types
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, load, spread, store
from bppsa_cupy.raw_kernels.twins.simd.vectors import WIDE, WORD, Vectors, data_of
from bppsa_cupy.system.compiled import compiled


def _tile(vectors, samples):
    """out[s, v] += sum over k of packed[first + k pitch + 16 v] values[s, k], for a few samples and
    vectors."""

    @intrinsic
    def tile(typingctx, packed, first, pitch, depth, values, place, apart, out, target, spacing):
        def codegen(context, builder, signature, arguments):
            _, first, pitch, depth, _, place, apart, _, target, spacing = arguments
            weights, source, to = (
                data_of(context, builder, signature.args[i], arguments[i]) for i in (0, 4, 7)
            )
            lanes = Vectors(builder, context.get_value_type(packed.dtype), LANES)

            def places(start, apart):
                return [builder.add(start, builder.mul(apart, WORD(s))) for s in range(samples)]

            pointers = [builder.gep(source, [at]) for at in places(place, apart)]
            targets = [
                lanes.at(to, builder.add(at, WORD(v * LANES)))
                for at in places(target, spacing)
                for v in range(vectors)
            ]

            def left(k):
                return [lanes.all(builder.load(builder.gep(values, [k]))) for values in pointers]

            def right(k):
                start = builder.add(first, builder.mul(k, pitch))
                rows = [builder.add(start, WORD(v * LANES)) for v in range(vectors)]
                return [lanes.load(lanes.at(weights, row)) for row in rows]

            sums = [lanes.load(pointer) for pointer in targets]
            sums = lanes.add_products(WORD(0), depth, sums, left, right)
            for total, pointer in zip(sums, targets, strict=True):
                lanes.store(total, pointer)
            return context.get_dummy_value()

        index = types.uint64
        return types.void(packed, index, index, index, values, index, index, out, index, index), codegen

    return tile


def _band(samples, vectors):
    """The product of a group of vectors with a few samples: tiles of so many vectors, then single ones."""
    wide, narrow = _tile(vectors, samples), _tile(1, samples)

    @compiled()
    def band(packed, first, width, depth, values, place, apart, out, target, spacing):
        L, vector = np.uint64(LANES), np.uint64(0)
        while vector + np.uint64(vectors) <= width:
            wide(
                packed, first + vector * L, width * L, depth, values, place, apart, out, target + vector * L,
                spacing,
            )  # fmt: skip
            vector += np.uint64(vectors)
        while vector < width:
            narrow(
                packed, first + vector * L, width * L, depth, values, place, apart, out, target + vector * L,
                spacing,
            )  # fmt: skip
            vector += np.uint64(1)

    return band


#: As many vectors as the registers hold sums of; lanes of float64 take two registers where they are wide.
_one, _two, _four = (
    (_band(1, 8), _band(2, 4), _band(4, 4)) if WIDE else (_band(1, 4), _band(2, 2), _band(4, 1))
)


@compiled()
def group_of(samples):
    """Vectors of rows that lie side by side in a packed matrix: those that products with so many samples read
    at once."""
    if WIDE:
        return 8
    return 1 if samples % 4 == 0 else 2 if samples % 2 == 0 else 4


@compiled()
def whole_vectors(rows):
    """Rows in whole vectors."""
    return (rows + LANES - 1) // LANES * LANES


@compiled()
def copy_vectors(source, first, target, place, count):
    """target[place : place + count] = source[first : first + count], whole vectors."""
    for i in range(np.uint64(0), np.uint64(count), np.uint64(LANES)):
        store(target, place + i, load(source, first + i))


@compiled()
def clear_vectors(target, place, count):
    """target[place : place + count] = 0, whole vectors."""
    zeros = spread(target.dtype.type(0))
    for i in range(np.uint64(0), np.uint64(count), np.uint64(LANES)):
        store(target, place + i, zeros)


@compiled()
def multiply_rows(
    packed,
    vectors,
    parts,
    depth,
    values,
    place,
    beside,
    apart,
    out,
    target,
    spacing,
    samples,
    group_size,
    from_last,
):
    """out[s, r] += the sum over p < parts and k < depth of M[r, p depth + k] values[s, p, k], r in whole
    vectors.

    packed     M (rows in `vectors` vectors, parts depth), by `packing.pack_rows` with this `group_size`
    values     of part p and sample s at place + p beside + s apart
    out        of sample s at target + s spacing
    from_last  begin with the last vectors: what was read last of a matrix beyond a cache is still in it, so
               that products of it in turn from the first and the last ones read the rest alone anew
    """
    L, four, two, count, long = (
        np.uint64(LANES), np.uint64(4), np.uint64(2), np.uint64(samples), np.uint64(depth),
    )  # fmt: skip
    groups = (vectors + group_size - 1) // group_size
    for number in range(groups):
        group = (groups - 1 - number if from_last else number) * group_size
        width = np.uint64(min(group_size, vectors - group))
        row = target + np.uint64(group) * L
        for part in range(np.uint64(parts)):
            first = (np.uint64(group * parts * depth) + part * long * width) * L
            source, sample = place + part * beside, np.uint64(0)
            while sample + four <= count:
                _four(
                    packed, first, width, long, values, source + sample * apart, apart, out,
                    row + sample * spacing, spacing,
                )  # fmt: skip
                sample += four
            if sample + two <= count:
                _two(
                    packed, first, width, long, values, source + sample * apart, apart, out,
                    row + sample * spacing, spacing,
                )  # fmt: skip
                sample += two
            if sample < count:
                _one(
                    packed, first, width, long, values, source + sample * apart, apart, out,
                    row + sample * spacing, spacing,
                )  # fmt: skip
