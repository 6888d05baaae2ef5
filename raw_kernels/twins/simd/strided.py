"""Copies between a few samples' values, a unit's beside each other, and each sample's own side by side."""

import numpy as np
from numba import types
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, never_inlined
from bppsa_cupy.raw_kernels.twins.simd.vectors import WORD, Vectors, data_of, shuffled
from bppsa_cupy.system.compiled import compiled


def _registers(context, builder, array_type, array, place, apart, samples):
    """Vectors of registers, and the function that gives a pointer to register `number` of the samples' units
    from `unit` on: each sample's lie `apart` from the others', or side by side where `apart` is None."""
    vectors = Vectors(builder, context.get_value_type(array_type.dtype))
    start = data_of(context, builder, array_type, array)

    def pointer(unit, number):
        if apart is None:
            offset = WORD(unit * samples + number * vectors.lanes)
        else:
            offset = builder.add(builder.mul(apart, WORD(number)), WORD(unit))
        return vectors.at(start, builder.add(place, offset))

    return vectors, pointer


def unzipped(builder, lines):
    """As many vectors as `lines`, a power of two, each of elements that lie so many apart in all lines."""
    for _ in range(len(lines).bit_length() - 1):
        pairs, places = list(zip(lines[::2], lines[1::2], strict=True)), range(2 * lines[0].type.count)
        lines = [shuffled(builder, *pair, places[odd::2]) for odd in (0, 1) for pair in pairs]
    return lines


def _parting(samples):
    """Copies LANES units of so many samples, and of no others, to each sample's own vector."""

    @intrinsic
    def part(typingctx, source, place, target, first, apart):
        def codegen(context, builder, signature, arguments):
            array, place, to, first, apart = arguments
            vectors, origin = _registers(context, builder, source, array, place, None, samples)
            _, aim = _registers(context, builder, target, to, first, apart, samples)
            for unit in range(0, LANES, vectors.lanes):
                lines = [vectors.load(origin(unit, number)) for number in range(samples)]
                for number, line in enumerate(unzipped(builder, lines)):
                    vectors.store(line, aim(unit, number))
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
            vectors, origin = _registers(context, builder, source, array, first, apart, samples)
            _, aim = _registers(context, builder, target, to, place, None, samples)
            half, lanes = vectors.lanes // 2, vectors.lanes
            orders = [[p for i in range(start, start + half) for p in (i, i + lanes)] for start in (0, half)]
            for unit in range(0, LANES, lanes):
                lines = [vectors.load(origin(unit, number)) for number in range(samples)]
                for _ in range(samples.bit_length() - 1):
                    pairs = zip(lines[: samples // 2], lines[samples // 2 :], strict=True)
                    lines = [shuffled(builder, *pair, order) for pair in pairs for order in orders]
                for number, line in enumerate(lines):
                    vectors.store(line, aim(unit, number))
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
