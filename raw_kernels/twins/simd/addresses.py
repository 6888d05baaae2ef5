"""Compiled functions called by their addresses, so that what calls them is compiled once for all of them.

A function that is called by name is linked into its caller, and compiled once more there.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
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


@intrinsic
def callback(typingctx, act, arguments):
    """(address, data) of a function of (task, data) that calls act(task, *arguments), for `has_failed`; the
    data last until the caller of `callback` returns."""
    taken = (types.int64, *arguments.types)
    signature = act.get_call_type(typingctx, taken, {})

    def codegen(context, builder, _, values):
        made = act.dispatcher.overloads[tuple(signature.args)]
        context.add_linking_libs([made.library])
        data, word = cgutils.alloca_once_value(builder, values[1]), context.get_value_type(types.intp)
        kind = ir.FunctionType(ir.IntType(1), [word, word])
        name = builder.module.get_unique_name(f"{builder.function.name}.task")
        function = ir.Function(builder.module, kind, name)
        function.linkage = "internal"
        inner = ir.IRBuilder(function.append_basic_block())
        packed = inner.load(inner.inttoptr(function.args[1], data.type))
        given = [function.args[0], *(inner.extract_value(packed, n) for n in range(len(arguments)))]
        last = signature.args[-1]
        if isinstance(last, (types.StarArgTuple, types.StarArgUniTuple)):
            given[-len(last) :] = [context.make_tuple(inner, last, given[-len(last) :])]
        callee = context.declare_function(builder.module, made.fndesc)
        kinds = made.fndesc.restype, made.fndesc.argtypes
        status, _ = context.call_conv.call_function(inner, callee, *kinds, given)
        inner.ret(status.is_error)
        made_of = [builder.ptrtoint(function, word), builder.ptrtoint(data, word)]
        return context.make_tuple(builder, pair, made_of)

    pair = types.UniTuple(types.intp, 2)
    return pair(act, arguments), codegen


@intrinsic
def has_failed(typingctx, address, task, data):
    """Whether the function that `callback` made raises an error for a task."""

    def codegen(context, builder, signature, values):
        address, *others = values
        kind = ir.FunctionType(ir.IntType(1), [value.type for value in others])
        return builder.call(builder.inttoptr(address, kind.as_pointer()), others)

    return types.boolean(types.intp, types.int64, types.intp), codegen
