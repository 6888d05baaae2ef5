"""What the scan's twins share: the values of one entry of a sparse matrix for 16 samples at a time.

Values of a matrix are batch innermost: entry i of sample s is `values[i * batch + s]` where the matrix
is batched, and `values[i]` where one set of values serves every sample. A twin works on the samples in
groups of LANES: `count` says how many the group from `sample` on has, and where that is fewer, the others
are neither read nor written.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, LaunchShape
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, Lanes, lanes_at, load, spread, store
from bppsa_cupy.system.compiled import part

#: The step of a loop over groups of samples.
GROUP = np.uint64(LANES)

#: Outputs of at least so many bytes bypass the caches, which they would not fit in: otherwise every
#: line is read from memory before it is written over.
STREAMED_BYTES = 1 << 24


@intrinsic
def load_some(typingctx, array, index, count):
    """The lanes array[index : index + count], zeros after them."""

    def codegen(context, builder, signature, arguments):
        vectors, pointer = lanes_at(context, builder, array, *arguments[:2])
        return vectors.load(pointer, arguments[2])

    return Lanes(array.dtype)(array, types.uint64, types.uint64), codegen


@intrinsic
def store_some(typingctx, array, index, count, value):
    """Set array[index : index + count] to the first lanes."""

    def codegen(context, builder, signature, arguments):
        vectors, pointer = lanes_at(context, builder, array, *arguments[:2])
        vectors.store(arguments[3], pointer, arguments[2])
        return context.get_dummy_value()

    return types.void(array, types.uint64, types.uint64, value), codegen


def past_caches(builder, value, pointer):
    """LLVM's store of lanes that bypasses the caches."""
    stored = builder.store(value, pointer, align=64)
    stored.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))


@intrinsic
def stream(typingctx, array, index, value):
    """`store`, past the caches; the address must be a multiple of 64 bytes. Other threads see it from the
    end of the parallel loop on, whose barrier orders it."""

    def codegen(context, builder, signature, arguments):
        _, pointer = lanes_at(context, builder, array, *arguments[:2])
        past_caches(builder, arguments[2], pointer)
        return context.get_dummy_value()

    return types.void(array, types.uint64, value), codegen


def one_block_per(count, block):
    """The launch of `block` threads for each of `count` work items, which blocks take in turns."""
    return LaunchShape((min(count, MAXIMAL_GRID), 1, 1), (block, 1, 1))


@part()
def is_streamed(out, width, least=STREAMED_BYTES):
    """Whether values of the entries of `out` bypass the caches: large, in whole groups, aligned."""
    large = out.size * out.itemsize >= least
    return large and width % GROUP == 0 and out.ctypes.data % 64 == 0


@part(forceinline=True)
def group_size(width, sample):
    """How many samples the group from `sample` on has."""
    return min(GROUP, width - sample)


@part(forceinline=True)
def read(values, entry, batched, width, sample, count):
    """The values of an entry for `count` samples from `sample` on; the same one in all lanes if shared."""
    if not batched:
        return spread(values[entry])
    if count == GROUP:
        return load(values, entry * width + sample)
    return load_some(values, entry * width + sample, count)


@part(forceinline=True)
def write(out, entry, width, sample, count, value, streamed):
    """Set the values of an entry for `count` samples from `sample` on."""
    if streamed:
        stream(out, entry * width + sample, value)
    elif count == GROUP:
        store(out, entry * width + sample, value)
    else:
        store_some(out, entry * width + sample, count, value)
