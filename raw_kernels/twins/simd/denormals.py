"""Numbers too small for the normal form of their type, taken for 0 by the calling thread.

Gradients that vanish on their way back end at the smallest denormal number, which a factor above one half
rounds to itself again, and processors take many times as long over each of them. What is lost is at most the
smallest normal number, 1.2e-38 in float32, in each operation. On processors other than x86 nothing changes.
"""

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: Bits of MXCSR: results that are denormal are 0, operands that are denormal are 0.
FLUSH_TO_ZERO, DENORMALS_ARE_ZERO = 1 << 15, 1 << 6

IS_X86 = binding.get_process_triple().startswith(("x86_64", "i686"))
WORD = ir.IntType(32)


def _call(builder, name, place):
    """One of LLVM's two functions that move MXCSR to memory and back."""
    kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.sse.{name}")
    builder.call(function, [builder.bitcast(place, ir.IntType(8).as_pointer())])


@intrinsic
def flush_denormals(typingctx):
    """From now on denormal numbers are 0; gives what `restore_denormals` takes.

    It holds for loops in between that read and write arrays; arithmetic on numbers at hand may be moved out.
    """

    def codegen(context, builder, signature, arguments):
        if not IS_X86:
            return WORD(0)
        place = cgutils.alloca_once(builder, WORD)
        _call(builder, "stmxcsr", place)
        former = builder.load(place)
        builder.store(builder.or_(former, WORD(FLUSH_TO_ZERO | DENORMALS_ARE_ZERO)), place)
        _call(builder, "ldmxcsr", place)
        return former

    return types.uint32(), codegen


@intrinsic
def restore_denormals(typingctx, former):
    """Have the calling thread take denormal numbers as it did before `flush_denormals`."""

    def codegen(context, builder, signature, arguments):
        if IS_X86:
            place = cgutils.alloca_once(builder, WORD)
            builder.store(arguments[0], place)
            _call(builder, "ldmxcsr", place)
        return context.get_dummy_value()

    return types.void(types.uint32), codegen
