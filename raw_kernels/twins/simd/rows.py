"""Several rows of lanes at once, as tuples: what a cell's functions take and give.

`number` is the number of rows, known when a twin is compiled; rows are `spacing` elements apart.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.twins.simd.lanes import Lanes, lanes_at, splat
from bppsa_cupy.raw_kernels.twins.simd.vectors import count_of, data_of

#: Every row.
ALL = -1


def _load(context, builder, array, data, place, count):
    vectors, pointer = lanes_at(context, builder, array, data, place)
    return vectors.load(pointer, count)


def _places(builder, place, spacing, number):
    return [builder.add(place, builder.mul(spacing, ir.IntType(64)(row))) for row in range(number)]


def _rows_of(dtype, number):
    return types.UniTuple(Lanes(dtype), number) if number else types.Tuple(())


@intrinsic(prefer_literal=True)
def load_rows(typingctx, array, place, spacing, number, bits, count):
    """The lanes at place, place + spacing, …, the first `count` of each or all where it is None; zeros in
    place of rows whose bit is not set."""
    total = number.literal_value
    rows = _rows_of(array.dtype, total)

    def codegen(context, builder, signature, arguments):
        data, place, spacing, _, _, count = arguments
        values = [
            _load(context, builder, array, data, at, count_of(signature.args[5], count))
            if bits.literal_value >> row & 1
            else splat(builder, ir.Constant(context.get_value_type(array.dtype), 0.0))
            for row, at in enumerate(_places(builder, place, spacing, total))
        ]
        return context.make_tuple(builder, rows, values)

    return rows(array, types.uint64, types.uint64, number, bits, count), codegen


@intrinsic(prefer_literal=True)
def spread_rows(typingctx, array, place, spacing, number):
    """Lanes that all hold the number at place, others that at place + spacing, …"""
    count = number.literal_value
    rows = _rows_of(array.dtype, count)

    def codegen(context, builder, signature, arguments):
        data, place, spacing, _ = arguments
        pointer = data_of(context, builder, array, data)
        values = [
            splat(builder, builder.load(builder.gep(pointer, [at])))
            for at in _places(builder, place, spacing, count)
        ]
        return context.make_tuple(builder, rows, values)

    return rows(array, types.uint64, types.uint64, number), codegen


@intrinsic
def store_rows(typingctx, array, place, spacing, rows, count):
    """Set the lanes at place, place + spacing, …, the first `count` of each or all where it is None, to
    those of a tuple."""

    def codegen(context, builder, signature, arguments):
        data, place, spacing, values, count = arguments
        for row, at in enumerate(_places(builder, place, spacing, len(rows))):
            vectors, pointer = lanes_at(context, builder, array, data, at)
            vectors.store(builder.extract_value(values, row), pointer, count_of(signature.args[4], count))
        return context.get_dummy_value()

    return types.void(array, types.uint64, types.uint64, rows, count), codegen


@intrinsic
def add_to_first(typingctx, rows, value):
    """Rows with lanes added to the first."""

    def codegen(context, builder, signature, arguments):
        total = builder.fadd(builder.extract_value(arguments[0], 0), arguments[1])
        return builder.insert_value(arguments[0], total, 0)

    return rows(rows, value), codegen


@intrinsic
def select_rows(typingctx, mask, rows, others):
    """`rows` in the lanes of a mask, `others` in the rest."""

    def codegen(context, builder, signature, arguments):
        mask, rows, others = arguments
        values = [
            builder.select(mask, builder.extract_value(rows, row), builder.extract_value(others, row))
            for row in range(len(signature.args[1]))
        ]
        return context.make_tuple(builder, signature.return_type, values)

    return rows(mask, rows, others), codegen


@intrinsic
def rows_within(typingctx, mask, rows):
    """`rows` in the lanes of a mask, 0 in the rest."""

    def codegen(context, builder, signature, arguments):
        values = []
        for row in range(len(rows)):
            value = builder.extract_value(arguments[1], row)
            values.append(builder.select(arguments[0], value, ir.Constant(value.type, None)))
        return context.make_tuple(builder, rows, values)

    return rows(mask, rows), codegen


@intrinsic(prefer_literal=True)
def chosen_rows(typingctx, rows, others, bits, taken):
    """Of `rows`, those whose bit is set replaced by the others in their order, the ones `taken`, by bits."""
    chosen = [row for row in range(len(rows)) if bits.literal_value >> row & 1]
    places = [row for row in range(len(rows)) if taken.literal_value >> row & 1]
    result = types.UniTuple(rows[0], len(places))

    def codegen(context, builder, signature, arguments):
        values = [builder.extract_value(arguments[0], row) for row in range(len(rows))]
        for place, row in enumerate(chosen):
            values[row] = builder.extract_value(arguments[1], place)
        return context.make_tuple(builder, result, [values[row] for row in places])

    return result(rows, others, bits, taken), codegen


@intrinsic
def dot(typingctx, left, right):
    """The sum of the products of two tuples, of lanes or of numbers."""

    def codegen(context, builder, signature, arguments):
        pairs = [[builder.extract_value(side, row) for side in arguments] for row in range(len(left))]
        total = builder.fmul(*pairs[0])
        for x, y in pairs[1:]:
            total = builder.fadd(total, builder.fmul(x, y))
        return total

    return left[0](left, right), codegen
