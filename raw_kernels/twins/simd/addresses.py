"""Compiled functions called by their addresses, so that what calls them is compiled once for all of them.

A function that is called by name is linked into its caller, and compiled once more there.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def address_of(function, signature):
    """The address of a compiled function for these argument types; it is compiled where it is not yet.

    The function gives nothing back and raises nothing. Arrays are taken as they lie in memory: whether one
    may be written to is no part of it.
    """
    return function.address(signature)


@intrinsic
def call_at(typingctx, address, arguments):
    """Call what `address_of` gave with a tuple of arguments."""

    def codegen(context, builder, signature, arguments):
        address, packed = arguments
        values = [builder.extract_value(packed, number) for number in range(len(signature.args[1]))]
        kind = ir.FunctionType(context.get_value_type(types.none), [value.type for value in values])
        builder.call(builder.inttoptr(address, kind.as_pointer()), values)
        return context.get_dummy_value()

    return types.void(types.intp, arguments), codegen
