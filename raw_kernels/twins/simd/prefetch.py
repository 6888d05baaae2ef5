"""Telling the processor what is read or written soon, so that it comes while other work goes on."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.twins.simd.vectors import data_of
from bppsa_cupy.system.compiled import compiled

#: Bytes that come at once.
LINE_BYTES = 64


def _line_of(is_written):
    """An intrinsic that asks for the line of array[index], to be read or written."""

    @intrinsic
    def ask(typingctx, array, index):
        def codegen(context, builder, signature, arguments):
            data = data_of(context, builder, array, arguments[0])
            place = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
            # Into every cache (3), as data (1).
            options = [ir.IntType(32)(value) for value in (is_written, 3, 1)]
            kind = ir.FunctionType(ir.VoidType(), [place.type, *(option.type for option in options)])
            builder.call(
                cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0"), [place, *options]
            )
            return context.get_dummy_value()

        return types.void(array, types.uint64), codegen

    return ask


_line_to_read, _line_to_write = _line_of(0), _line_of(1)


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
