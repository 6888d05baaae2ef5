"""Copies between a few samples' values, a unit's beside each other, and each sample's own side by side."""

import numpy as np
from numba import types
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, lanes_at, never_inlined
from bppsa_cupy.raw_kernels.twins.simd.vectors import WORD, shuffled
from bppsa_cupy.system.compiled import compiled


def _parting(samples):
    """Copies LANES units of so many samples, and of no others, to each sample's own vector."""

    @intrinsic
    def part(typingctx, source, place, target, first, apart):
        def codegen(context, builder, signature, arguments):
            array, place, to, first, apart = arguments
            vectors, pointer = lanes_at(context, builder, source, array, place, samples * LANES)
            together = vectors.load(pointer)
            for s in range(samples):
                line = shuffled(builder, together, together, range(s, samples * LANES, samples))
                at = builder.add(first, builder.mul(apart, WORD(s)))
                vectors, pointer = lanes_at(context, builder, target, to, at)
                vectors.store(line, pointer)
            return context.get_dummy_value()

        index = types.uint64
        return types.void(source, index, target, index, index), codegen

    return part


def _joining(samples):
    """The inverse of `_parting`."""

    @intrinsic
    def join(typingctx, source, first, apart, target, place):
        def codegen(context, builder, signature, arguments):
            array, first, apart, to, place = arguments
            lines = []
            for s in range(samples):
                at = builder.add(first, builder.mul(apart, WORD(s)))
                vectors, pointer = lanes_at(context, builder, source, array, at)
                lines.append(vectors.load(pointer))
            while len(lines) > 2:
                pairs = zip(lines[::2], lines[1::2], strict=True)
                lines = [shuffled(builder, a, b, range(2 * a.type.count)) for a, b in pairs]
            places = [s * LANES + i for i in range(LANES) for s in range(samples)]
            vectors, pointer = lanes_at(context, builder, target, to, place, samples * LANES)
            vectors.store(shuffled(builder, *lines, places), pointer)
            return context.get_dummy_value()

        index = types.uint64
        return types.void(source, index, index, target, index), codegen

    return join


_part_two, _part_four, _part_eight = _parting(2), _parting(4), _parting(8)
_join_two, _join_four, _join_eight = _joining(2), _joining(4), _joining(8)


@compiled()
def in_vectors(batch, samples, count):
    """Units, of `count`, that are copied LANES at a time."""
    alone = batch == samples and (samples == 2 or samples == 4 or samples == 8)
    return count // LANES * LANES if alone else 0


@compiled()
def gather(source, place, batch, samples, count, target, first, apart):
    """target[first + s apart + i] = source[place + i batch + s] for i < count, s < samples."""
    never_inlined()
    done, L, width = in_vectors(batch, samples, count), np.uint64(LANES), np.uint64(apart)
    start, into, step = np.uint64(place), np.uint64(first), np.uint64(batch)
    for i in range(np.uint64(0), np.uint64(done), L):
        if samples == 2:
            _part_two(source, start + i * step, target, into + i, width)
        elif samples == 4:
            _part_four(source, start + i * step, target, into + i, width)
        else:
            _part_eight(source, start + i * step, target, into + i, width)
    for s in range(np.uint64(samples)):
        to = into + s * width
        if batch == 1:
            for i in range(np.uint64(count)):
                target[to + i] = source[start + i]
        else:
            for i in range(np.uint64(done), np.uint64(count)):
                target[to + i] = source[start + s + i * step]


@compiled()
def scatter(source, first, apart, samples, count, target, place, batch):
    """The inverse of `gather`: target[place + i batch + s] = source[first + s apart + i]."""
    never_inlined()
    done, L, width = in_vectors(batch, samples, count), np.uint64(LANES), np.uint64(apart)
    start, into, step = np.uint64(first), np.uint64(place), np.uint64(batch)
    for i in range(np.uint64(0), np.uint64(done), L):
        if samples == 2:
            _join_two(source, start + i, width, target, into + i * step)
        elif samples == 4:
            _join_four(source, start + i, width, target, into + i * step)
        else:
            _join_eight(source, start + i, width, target, into + i * step)
    for s in range(np.uint64(samples)):
        origin = start + s * width
        if batch == 1:
            for i in range(np.uint64(count)):
                target[into + i] = source[origin + i]
        else:
            for i in range(np.uint64(done), np.uint64(count)):
                target[into + s + i * step] = source[origin + i]
