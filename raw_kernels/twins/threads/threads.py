"""How many threads a parallel loop has."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.ufunc.parallel import _launch_threads


@intrinsic
def thread_count(typingctx):
    """numba.get_num_threads(). (Numba compiles its own as an address, which another process that loads the
    code from disk would jump to.)"""

    _launch_threads()  # brings the symbol along

    def codegen(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.IntType(types.intp.bitwidth), [])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "get_num_threads"), [])

    return types.intp(), codegen
