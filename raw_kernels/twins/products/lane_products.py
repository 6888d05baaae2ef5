"""Matrix products with lanes of samples: a weight matrix times states, and sums of outer products."""

import numpy as np
from numba import types
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES
from bppsa_cupy.raw_kernels.twins.simd.vectors import WIDE, WORD, Vectors, data_of, loop
from bppsa_cupy.system.compiled import compiled

#: Rows of a weight matrix whose sums are held at once; what remains is done by fewer.
ROWS = 10 if WIDE else 5

#: Rows and columns of outer products whose sums are held at once.
DOWN, ACROSS = (4, 5) if WIDE else (2, 3)

#: Bytes of values that stay in the nearest cache while a tile of weights passes over them.
NEAR = 1 << 14

#: Blocks of lanes, of some steps, that stay in the nearest cache while every tile of outer products
#: passes over them.
BLOCK = 16


def _product_tile(rows):
    """out_r = bias_r + sum over k of packed[first + k rows + r] values_k, for `rows` rows r."""

    @intrinsic
    def tile(typingctx, packed, first, bias, shift, columns, values, place, stride, out, target, spacing):
        def codegen(context, builder, signature, arguments):
            first, shift, columns, place, stride, target, spacing = (
                arguments[i] for i in (1, 3, 4, 6, 7, 9, 10)
            )
            weights, biases, source, to = (
                data_of(context, builder, signature.args[i], arguments[i]) for i in (0, 2, 5, 8)
            )
            lanes = Vectors(builder, context.get_value_type(packed.dtype), LANES)

            def numbers(data, start):
                for r in range(rows):
                    yield lanes.all(builder.load(builder.gep(data, [builder.add(start, WORD(r))])))

            def left(k):
                return numbers(weights, builder.add(first, builder.mul(k, WORD(rows))))

            def right(k):
                return [lanes.load(lanes.at(source, builder.add(place, builder.mul(k, stride))))]

            sums = lanes.add_products(WORD(0), columns, list(numbers(biases, shift)), left, right)
            for r, total in enumerate(sums):
                lanes.store(total, lanes.at(to, builder.add(target, builder.mul(WORD(r), spacing))))
            return context.get_dummy_value()

        index = types.uint64
        return types.void(packed, index, bias, index, index, values, index, index, out, index, index), codegen

    return tile


_tile_many, _tile_two, _tile_one = _product_tile(ROWS), _product_tile(2), _product_tile(1)


@compiled()
def multiply(packed, bias, rows, columns, values, place, stride, out, target, spacing):
    """out_r = bias_r + sum over k of M[r, k] values_k, on lanes.

    packed  M (rows, columns), by `packing.pack`; bias (rows)
    values  the lanes of value k at place + k stride
    out     the lanes of row r at target + r spacing
    """
    none = np.uint64(0)
    multiply_blocks(
        packed, bias, rows, columns, values, place, stride, none, out, target, spacing, none, np.uint64(1)
    )


@compiled()
def multiply_blocks(
    packed, bias, rows, columns, values, place, stride, apart, out, target, spacing, out_apart, blocks
):
    """`multiply` for several blocks of lanes: those of block n at n apart in `values`, n out_apart in
    `out`."""
    width, height = np.uint64(columns), np.uint64(rows)
    two, many = np.uint64(2), np.uint64(ROWS)
    near = max(1, NEAR // max(1, columns * LANES * values.itemsize))
    for start in range(np.uint64(0), np.uint64(blocks), np.uint64(near)):
        stop = min(start + np.uint64(near), np.uint64(blocks))
        row, first = np.uint64(0), np.uint64(0)
        while row + many <= height:
            for block in range(start, stop):
                _tile_many(
                    packed, first, bias, row, width, values, place + block * apart, stride, out,
                    target + row * spacing + block * out_apart, spacing,
                )  # fmt: skip
            row += many
            first += many * width
        while row + two <= height:
            for block in range(start, stop):
                _tile_two(
                    packed, first, bias, row, width, values, place + block * apart, stride, out,
                    target + row * spacing + block * out_apart, spacing,
                )  # fmt: skip
            row += two
            first += two * width
        if row < height:
            for block in range(start, stop):
                _tile_one(
                    packed, first, bias, row, width, values, place + block * apart, stride, out,
                    target + row * spacing + block * out_apart, spacing,
                )  # fmt: skip


def _outer_tile(down, across):
    """sums[r, c] += left_r right_c, a lane apart, over steps and blocks of lanes; `down` rows and `across`
    columns.

    A row or column past the last repeats it, and so makes the same sum once more.
    """

    @intrinsic
    def tile(
        typingctx, left, left_place, left_spacing, left_step, rows, right, right_place, right_spacing,
        right_step, columns, right_apart, steps, blocks, sums, target, width,
    ):  # fmt: skip
        def codegen(context, builder, signature, arguments):
            left_step, right_step, right_apart, steps, blocks, target, width = (
                arguments[i] for i in (3, 8, 10, 11, 12, 14, 15)
            )
            lanes = Vectors(builder, context.get_value_type(left.dtype), LANES)
            ups, ons, to = (data_of(context, builder, signature.args[i], arguments[i]) for i in (0, 5, 13))

            def last_or(count, i):
                last = builder.sub(count, WORD(1))
                return builder.select(builder.icmp_unsigned("<", WORD(i), count), WORD(i), last)

            def places(first, spacing, count, number):
                return [builder.add(first, builder.mul(last_or(count, i), spacing)) for i in range(number)]

            lefts = places(arguments[1], arguments[2], arguments[4], down)
            rights = places(arguments[6], arguments[7], arguments[9], across)
            tops = places(target, width, arguments[4], down)
            beside = places(WORD(0), WORD(LANES), arguments[9], across)
            targets = [lanes.at(to, builder.add(top, column)) for top in tops for column in beside]

            def loaded(data, firsts, behind):
                return [lanes.load(lanes.at(data, builder.add(first, behind))) for first in firsts]

            def of_step(step, *totals):
                above, along = builder.mul(step, left_step), builder.mul(step, right_step)
                return lanes.add_products(
                    WORD(0),
                    blocks,
                    totals,
                    lambda block: loaded(ups, lefts, builder.add(above, builder.mul(block, WORD(LANES)))),
                    lambda block: loaded(ons, rights, builder.add(along, builder.mul(block, right_apart))),
                )

            totals = loop(builder, WORD(0), steps, [lanes.load(place) for place in targets], of_step)
            for total, place in zip(totals, targets, strict=True):
                lanes.store(total, place)
            return context.get_dummy_value()

        index = types.uint64
        side = (index, index, index, index)
        return types.void(left, *side, right, *side, index, index, index, sums, index, index), codegen

    return tile


_outer, _outer_column = _outer_tile(DOWN, ACROSS), _outer_tile(8, 1)


@compiled()
def add_outer(
    left, left_place, left_spacing, left_step, rows, right, right_place, right_spacing, right_step, columns,
    steps, blocks, ones, sums,
):  # fmt: skip
    """sums[r, c] += the sum over steps and blocks of left_r right_c, and sums[r, columns] += that of left_r;
    on lanes.

    left, right  the lanes of row r at place + r spacing, those of the next step `step` on, of the next block
                 of lanes LANES on
    ones         LANES ones
    sums         (rows, columns + 1, LANES)
    """
    height, breadth, length, many = np.uint64(rows), np.uint64(columns), np.uint64(steps), np.uint64(blocks)
    lanes, none, one = np.uint64(LANES), np.uint64(0), np.uint64(1)
    width = (breadth + one) * lanes
    wide = breadth - breadth % np.uint64(ACROSS)
    # Three columns or more are worth a tile that repeats the last of them.
    if breadth - wide > np.uint64(2):
        wide = breadth
    for row in range(none, height, np.uint64(DOWN)):
        for column in range(none, wide, np.uint64(ACROSS)):
            _outer(
                left, left_place + row * left_spacing, left_spacing, left_step, height - row,
                right, right_place + column * right_spacing, right_spacing, right_step, wide - column, lanes,
                length, many, sums, row * width + column * lanes, width,
            )  # fmt: skip
    for row in range(none, height, np.uint64(8)):
        place = left_place + row * left_spacing
        for column in range(wide, breadth):
            _outer_column(
                left, place, left_spacing, left_step, height - row,
                right, right_place + column * right_spacing, right_spacing, right_step, one, lanes, length,
                many, sums, row * width + column * lanes, width,
            )  # fmt: skip
        _outer_column(
            left, place, left_spacing, left_step, height - row, ones, none, none, none, one, none, length,
            many, sums, row * width + breadth * lanes, width,
        )  # fmt: skip
