"""Convolutions that go by a list of taps: what is shared by the twins of `sparse_*`.

The planes of the input lie one after another as cells, some samples to a cell, with just the zeros between
rows and between planes that windows reach into: those after a row serve the next one's beginning too. So a
tap of the list is one offset, and what it adds to the outputs of some rows of a plane is a single run of
vectors, whatever the kernel, padding or dilation. The cells between two rows of outputs are computed and left
out. A plane that is strided over is split into its phases, each a plane of its own.

Law: an output is the sum over its taps in the order of the list, on its own lane, so its bits depend neither
on the batch that it is in nor on the number of threads.
"""

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.twins.products.panels import aligned
from bppsa_cupy.raw_kernels.twins.products.tiles import lanes_of
from bppsa_cupy.raw_kernels.twins.simd.lanes import never_inlined
from bppsa_cupy.raw_kernels.twins.simd.squares import put_lines, put_square, take_square
from bppsa_cupy.raw_kernels.twins.simd.vectors import (
    VECTOR_BYTES,
    WORD,
    Vectors,
    call_named,
    data_of,
    loop,
    shuffled,
)
from bppsa_cupy.system.compiled import compiled

#: Vectors of a run whose sums, or gradients, stay in registers.
WIDEST = 14 if VECTOR_BYTES == 64 else 10

#: Vectors that a run has at least, where the batch is large enough.
ENOUGH = 8


class Cells(NamedTuple):
    """How planes lie as cells: of `wide` samples each, rows `pitch` and planes `plane` cells apart, from
    `before` cells of zeros on; each channel has a plane for every phase of the strides."""

    wide: int
    pitch: int
    plane: int
    before: int
    stride_y: int
    stride_x: int


class _Runs(Vectors):
    """Runs of vectors at places of arrays, in LLVM's language."""

    def place_of(self, start, vector):
        """Where vector number `vector` of a run lies that begins at the pointer `start`."""
        return self.at(start, WORD(vector * self.lanes))

    def by_width(self, width, emit):
        """What `emit` writes for each width up to WIDEST, of which a run takes its own."""
        builder, after = self.builder, self.builder.append_basic_block("after")
        switch = builder.switch(width, after)
        for vectors in range(1, WIDEST + 1):
            block = builder.append_basic_block(f"vectors{vectors}")
            switch.add_case(WORD(vectors), block)
            builder.position_at_end(block)
            emit(vectors)
            builder.branch(after)
        builder.position_at_end(after)


def _window(builder, source, offsets, k):
    """Where what tap k sees lies: offsets[k], an unsigned integer, behind `source`."""
    return builder.gep(source, [builder.zext(builder.load(builder.gep(offsets, [k])), WORD)])


@intrinsic
def _sum_taps(typingctx, width, packed, place, offsets, values, count, sums, target):
    def codegen(context, builder, signature, arguments):
        width, _, place, _, _, count, _, target = arguments
        runs = _Runs(builder, context.get_value_type(packed.dtype))
        source, offset, value, out = (
            data_of(context, builder, signature.args[i], arguments[i]) for i in (1, 3, 4, 6)
        )
        source, out = builder.gep(source, [place]), builder.gep(out, [target])

        def emit(vectors):
            def factor(k):
                return [runs.all(builder.load(builder.gep(value, [k])))]

            def window(k):
                start = _window(builder, source, offset, k)
                return [runs.load(runs.place_of(start, v)) for v in range(vectors)]

            sums = runs.add_products(WORD(0), count, [runs.zeros()] * vectors, factor, window)
            for v, total in enumerate(sums):
                runs.store(total, runs.place_of(out, v))

        runs.by_width(width, emit)
        return context.get_dummy_value()

    index = types.uint64
    return types.void(index, packed, index, offsets, values, index, sums, index), codegen


@intrinsic
def _add_dot_products(typingctx, width, packed, place, offsets, count, gradient, start, sums):
    def codegen(context, builder, signature, arguments):
        width, _, place, _, count, _, start, _ = arguments
        runs = _Runs(builder, context.get_value_type(packed.dtype))
        source, offset, gradient, out = (
            data_of(context, builder, signature.args[i], arguments[i]) for i in (1, 3, 5, 7)
        )
        source, gradient = builder.gep(source, [place]), builder.gep(gradient, [start])

        def emit(vectors):
            factors = [runs.load(runs.place_of(gradient, v)) for v in range(vectors)]

            def body(k):
                window = _window(builder, source, offset, k)
                place_of_sum = runs.at(out, builder.mul(k, WORD(runs.lanes)))
                totals = [runs.load(place_of_sum), runs.zeros()]
                for v, factor in enumerate(factors):
                    vector = runs.load(runs.place_of(window, v))
                    totals[v % 2] = call_named(builder, "llvm.fmuladd", factor, vector, totals[v % 2])
                runs.store(builder.fadd(*totals), place_of_sum)
                return []

            loop(builder, WORD(0), count, [], body)

        runs.by_width(width, emit)
        return context.get_dummy_value()

    index = types.uint64
    return types.void(index, packed, index, offsets, index, gradient, index, sums), codegen


@intrinsic
def lane_sum(typingctx, array, index):
    """The sum of the vector that starts at array[index], by halves."""

    def codegen(context, builder, signature, arguments):
        vectors = Vectors(builder, context.get_value_type(array.dtype))
        data = data_of(context, builder, signature.args[0], arguments[0])
        total, lanes = vectors.load(vectors.at(data, arguments[1])), vectors.lanes
        while lanes > 1:
            lanes //= 2
            halves = (shuffled(builder, total, total, range(start, start + lanes)) for start in (0, lanes))
            total = builder.fadd(*halves)
        return builder.extract_element(total, ir.IntType(32)(0))

    return array.dtype(array, types.uint64), codegen


@compiled()
def sum_taps(packed, place, offsets, values, count, vectors, sums):
    """sums[i] = Σ_k values[k] packed[place + offsets[k] + i] over the `vectors` vectors of a run."""
    never_inlined()
    lanes, cuts = lanes_of(packed.itemsize), (vectors + WIDEST - 1) // WIDEST
    for cut in range(cuts):
        first = vectors * cut // cuts
        start = np.uint64(first * lanes)
        _sum_taps(
            np.uint64(vectors * (cut + 1) // cuts - first), packed, np.uint64(place) + start, offsets, values,
            np.uint64(count), sums, start,
        )  # fmt: skip


@compiled()
def add_dot_products(packed, place, offsets, count, gradient, vectors, sums):
    """sums[k] += Σ_i gradient[i] packed[place + offsets[k] + i], by lanes, over the vectors of a run; sums
    (count, lanes)."""
    never_inlined()
    lanes, cuts = lanes_of(packed.itemsize), (vectors + WIDEST - 1) // WIDEST
    for cut in range(cuts):
        first = vectors * cut // cuts
        start = np.uint64(first * lanes)
        _add_dot_products(
            np.uint64(vectors * (cut + 1) // cuts - first), packed, np.uint64(place) + start, offsets,
            np.uint64(count), gradient, start, sums,
        )  # fmt: skip


@compiled()
def reach(steps, stride):
    """The least and the largest of the taps' steps along an axis, in cells of a phase."""
    low, high = 0, 0
    for k in range(steps.size):
        low, high = min(low, steps[k]), max(high, steps[k])
    return low // stride, high // stride


@compiled()
def axis_of_cells(inputs, outputs, stride, low, high):
    """Cells that lie from one row, or plane, to the next, and how many of them are zeros that are reached
    into."""
    windows = (inputs + stride - 1) // stride
    gap = max(0, max(-low, outputs + high - windows))
    return max(windows + gap, outputs), gap


@compiled()
def offset_taps(first, end, channels, downs, rights, cells, offsets):
    """Set offsets[first : end] to the elements from where the cells begin to what those taps of the first
    output see."""
    stride_y, stride_x = cells.stride_y, cells.stride_x
    for k in range(np.uint64(first), np.uint64(end)):
        channel, down, right = np.int64(channels[k]), np.int64(downs[k]), np.int64(rights[k])
        # A division takes longer than a tap of few vectors.
        if stride_y > 1 or stride_x > 1:
            phase_y, phase_x = down % stride_y, right % stride_x
            channel = (channel * stride_y + phase_y) * stride_x + phase_x
            down, right = (down - phase_y) // stride_y, (right - phase_x) // stride_x
        place = cells.before + channel * cells.plane + down * cells.pitch + right
        offsets[k] = np.uint32(place * cells.wide)


@compiled()
def cut_batch(batch, lanes, cells, part):
    """Of each of two parts of a batch: how many units it has, and the samples to a cell of each."""
    if batch >= lanes:
        wide = lanes * max(1, min((ENOUGH + cells - 1) // cells, batch // lanes))
        units = batch // wide
    else:
        wide, units = lanes, 0
    rest = batch - units * wide
    if part == 0:
        return units, wide
    up = (rest + lanes - 1) // lanes * lanes
    return min(rest, 1), up if 3 * up <= 4 * rest else rest


@compiled()
def pack_cells(x, first, apart, samples, height, width, packed, start, cells):
    """Copy one plane of `samples` samples, `apart` from one another in x, from `first` on, into zeroed cells
    from cell `start` on."""
    never_inlined()
    wide, pitch, stride_y, stride_x = cells.wide, cells.pitch, cells.stride_y, cells.stride_x
    lanes, many = lanes_of(x.itemsize), np.uint64(wide)
    if stride_y == 1 and stride_x == 1 and samples == wide and wide % lanes == 0:
        positions, L = height * width, np.uint64(lanes)
        turned, unused = aligned(positions * lanes, x), np.zeros(lanes, x.dtype)
        for sample in range(0, wide, lanes):
            source = np.uint64(first + sample * apart)
            full = np.uint64(positions // lanes * lanes)
            for c in range(np.uint64(0), full, L):
                put_square(x, source + c, np.uint64(apart), L, turned, c * L, L, unused, np.uint64(0))
            if full < np.uint64(positions):
                put_lines(
                    x, source + full, np.uint64(apart), L, np.uint64(positions) - full, turned,
                    full * L, L, unused, np.uint64(0),
                )  # fmt: skip
            for y in range(height):
                target, taken = np.uint64((start + y * pitch) * wide + sample), np.uint64(y * width * lanes)
                if wide == lanes:
                    for k in range(np.uint64(width * lanes)):
                        packed[target + k] = turned[taken + k]
                else:
                    for c in range(np.uint64(width)):
                        for k in range(L):
                            packed[target + c * many + k] = turned[taken + c * L + k]
    elif stride_y == 1 and stride_x == 1 and wide == 1:
        for y in range(height):
            source, target = np.uint64(first + y * width), np.uint64(start + y * pitch)
            for k in range(np.uint64(width)):
                packed[target + k] = x[source + k]
    else:
        for y in range(height):
            for sample in range(samples):
                source = np.uint64(first + sample * apart + y * width)
                for phase in range(min(stride_x, width)):
                    number = y % stride_y * stride_x + phase
                    row = start + number * cells.plane + y // stride_y * pitch
                    target, step = np.uint64(row * wide + sample), np.uint64(stride_x)
                    for k in range(np.uint64((width - phase + stride_x - 1) // stride_x)):
                        packed[target + k * many] = x[source + np.uint64(phase) + k * step]


@compiled()
def unpack_cells(sums, rows, columns, cells, shift, y, first, apart, samples, row, column):
    """Write `rows` rows of `columns` outputs, which lie as cells in sums, plus `shift`: of sample s at
    first + s apart, rows `row` and columns `column` apart."""
    never_inlined()
    wide, pitch = cells.wide, cells.pitch
    if wide == 1 and column == 1:
        for i in range(rows):
            source, target = np.uint64(i * pitch), np.uint64(first + i * row)
            for k in range(np.uint64(columns)):
                y[target + k] = sums[source + k] + shift
    elif wide == 1 or column != 1 or row != columns:
        for i in range(rows):
            for sample in range(samples):
                source = np.uint64(i * pitch * wide + sample)
                target = np.uint64(first + sample * apart + i * row)
                for k in range(np.uint64(columns)):
                    y[target + k * np.uint64(column)] = sums[source + k * np.uint64(wide)] + shift
    else:
        lanes, positions = lanes_of(y.itemsize), rows * columns
        scratch = aligned(positions * wide, y)
        for i in range(rows):
            source, target = np.uint64(i * pitch * wide), np.uint64(i * columns * wide)
            for k in range(np.uint64(columns * wide)):
                scratch[target + k] = sums[source + k] + shift
        for sample in range(0, samples, lanes):
            for c in range(0, positions, lanes):
                take_square(
                    scratch, np.uint64(c * wide + sample), np.uint64(wide),
                    np.uint64(min(lanes, positions - c)), np.uint64(min(lanes, samples - sample)), y,
                    np.uint64(first + sample * apart + c), np.uint64(apart),
                )  # fmt: skip


@compiled()
def pack_channel(x, source, channel, channels, batch, height, width, target, cells):
    """Copy one channel of the samples from `source` on into a unit's cells, of which those around it, and
    around all channels, become zeros."""
    wide, before, size = cells.wide, cells.before, cells.stride_y * cells.stride_x * cells.plane
    start, end = before + channel * size, before + channels * size
    if channel == 0:
        target[: before * wide] = 0
        target[end * wide :] = 0
    target[start * wide : (start + size) * wide] = 0
    pack_cells(
        x, (source * channels + channel) * height * width, channels * height * width,
        min(wide, batch - source), height, width, target, start, cells,
    )  # fmt: skip
