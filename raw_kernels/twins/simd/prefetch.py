"""Telling the processor what is read or written soon, so that it comes while other work goes on."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES
from bppsa_cupy.raw_kernels.twins.simd.vectors import WORD, data_of
from bppsa_cupy.system.compiled import compiled

#: Bytes that come at once.
LINE_BYTES = 64


def _ask(builder, place, bytes, is_written):
    """Ask for the lines of so many bytes from a place on."""
    place = builder.bitcast(place, ir.IntType(8).as_pointer())
    # Into every cache (3), as data (1).
    options = [ir.IntType(32)(value) for value in (is_written, 3, 1)]
    kind = ir.FunctionType(ir.VoidType(), [place.type, *(option.type for option in options)])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    for byte in range(0, bytes, LINE_BYTES):
        builder.call(prefetch, [builder.gep(place, [WORD(byte)]), *options])


def _lines_of(is_written, count):
    """An intrinsic that asks for the lines of array[index : index + count], to be read or written."""

    @intrinsic
    def ask(typingctx, array, index):
        def codegen(context, builder, signature, arguments):
            place = builder.gep(data_of(context, builder, array, arguments[0]), [arguments[1]])
            _ask(builder, place, count * array.dtype.bitwidth // 8, is_written)
            return context.get_dummy_value()

        return types.void(array, types.uint64), codegen

    return ask


_line_to_read, _line_to_write = _lines_of(0, 1), _lines_of(1, 1)
#: Of lanes, which may lie outside of the array.
lanes_will_be_read = _lines_of(0, LANES)


@intrinsic
def lanes_will_be_written(typingctx, array, index, wanted):
    """Ask for the lines of array[index : index + LANES], which may lie outside of the array, to be written,
    where `wanted`. There is no branch, around which Numba would count references in the innermost loop."""

    def codegen(context, builder, signature, arguments):
        array_data, index, wanted = arguments
        place = builder.gep(data_of(context, builder, array, array_data), [index])
        bytes = LANES * array.dtype.bitwidth // 8
        near = cgutils.alloca_once(builder, ir.ArrayType(ir.IntType(8), bytes))
        place = builder.select(wanted, place, builder.bitcast(near, place.type))
        _ask(builder, place, bytes, 1)
        return context.get_dummy_value()

    return types.void(array, types.uint64, types.boolean), codegen


@compiled()
def _step(array, apart):
    return np.uint64(max(LINE_BYTES // array.itemsize, apart))


@compiled()
def will_read(array, place, count, apart):
    """Ask for the lines of `count` elements from array[place] on, `apart` from one another."""
    for index in range(np.uint64(place), np.uint64(place + count * apart), _step(array, apart)):
        _line_to_read(array, index)


@compiled()
def will_write(array, place, count, apart):
    """As `will_read`, of elements that are written."""
    for index in range(np.uint64(place), np.uint64(place + count * apart), _step(array, apart)):
        _line_to_write(array, index)
