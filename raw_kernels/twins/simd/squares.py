"""Copies between layouts of matrices by vector registers: lines, and squares of as many as one has lanes."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.twins.simd.lanes import never_inlined
from bppsa_cupy.raw_kernels.twins.simd.strided import gather, scatter, unzipped
from bppsa_cupy.raw_kernels.twins.simd.vectors import (
    VECTOR_BYTES,
    WORD,
    Vectors,
    count_of,
    data_of,
    loop,
    shuffled,
)
from bppsa_cupy.system.compiled import compiled


class _Lines(Vectors):
    """Lines of an array as vector registers."""

    def __init__(self, context, builder, array_type):
        super().__init__(builder, context.get_value_type(array_type.dtype))
        self.context = context

    def pointer(self, array_type, array, index):
        """Where the vector array[index : index + lanes] lies."""
        return self.at(data_of(self.context, self.builder, array_type, array), index)

    def gather(self, pointer, apart, count):
        """The first `count` of elements `apart` from one another, zeros after them."""
        builder, indices = self.builder, ir.VectorType(WORD, self.lanes)
        bytes_apart = self.all(builder.mul(apart, WORD(self.size)))
        steps = builder.mul(bytes_apart, ir.Constant(indices, list(range(self.lanes))))
        places = builder.add(self.all(builder.ptrtoint(pointer, WORD)), steps)
        pointers = builder.inttoptr(places, ir.VectorType(pointer.type, self.lanes))
        align, mask = ir.IntType(32)(self.size), self.first(count)
        return self.masked("gather", f"v{self.lanes}p0", self.type, pointers, align, mask, self.zeros())

    def transpose(self, lines):
        """As many vectors as lanes, as a square matrix transposed: squares of 16 bytes, which an unpacking
        instruction does not cross, and then their places."""
        lines, across, lanes = list(lines), 16 // self.size, range(self.lanes)
        orders = [
            [p + self.lanes * side for p in lanes if p % across // (across // 2) == half for side in (0, 1)]
            for half in (0, 1)
        ]
        for start in range(0, self.lanes, across):
            square = lines[start : start + across]
            for _ in range(across.bit_length() - 1):
                pairs = zip(square[: across // 2], square[across // 2 :], strict=True)
                square = [shuffled(self.builder, *pair, order) for pair in pairs for order in orders]
            lines[start : start + across] = square
        while across < self.lanes:
            low = [p + self.lanes - across if p & across else p for p in lanes]
            high = [p + self.lanes if p & across else p + across for p in lanes]
            for i in lanes:
                if not i & across:
                    pair = lines[i], lines[i + across]
                    lines[i] = shuffled(self.builder, *pair, low)
                    lines[i + across] = shuffled(self.builder, *pair, high)
            across *= 2
        return lines

    def sum(self, lines):
        """The sum of a power of two of vectors, in pairs."""
        while len(lines) > 1:
            lines = [self.builder.fadd(x, y) for x, y in zip(lines[::2], lines[1::2], strict=True)]
        return lines[0]

    def lines(self, array_type, array, place, apart, count, loaded=None):
        """As many vectors as lanes, `apart` from one another, their first `loaded` lanes or all; from `count`
        on the last one again."""
        builder, index = self.builder, WORD
        last, lines = builder.sub(count, index(1)), []
        for line in range(self.lanes):
            number = builder.select(builder.icmp_unsigned("<", index(line), count), index(line), last)
            here = builder.add(place, builder.mul(number, apart))
            lines.append(self.load(self.pointer(array_type, array, here), loaded))
        return lines


_INDEX = types.uint64


@intrinsic
def copy_line(typingctx, source, place, count, target, start, stored, shift):
    """Set target[start : start + stored] to source[place : place + count], zeros after them, plus `shift`;
    each at most a vector's lanes, or None for all of them."""

    def codegen(context, builder, signature, arguments):
        vectors = _Lines(context, builder, source)
        _, place, count, _, start, stored, shift = arguments
        line = vectors.load(vectors.pointer(source, arguments[0], place), count_of(signature.args[2], count))
        line = builder.fadd(line, vectors.all(shift))
        vectors.store(line, vectors.pointer(target, arguments[3], start), count_of(signature.args[5], stored))
        return context.get_dummy_value()

    return types.void(source, _INDEX, count, target, _INDEX, stored, source.dtype), codegen


@intrinsic
def put_lines(typingctx, source, place, apart, rows, count, target, start, spacing, sums, first_sum):
    """target[start + b spacing + lane] = source[place + b + lane apart] for b < count, zero from lane `rows`
    on; the sums over b are added to sums[first_sum + lane]."""

    def codegen(context, builder, signature, arguments):
        vectors = _Lines(context, builder, source)
        place, apart, rows, count, _, start, spacing, _, first_sum = arguments[1:]

        def body(b, total):
            here = vectors.pointer(source, arguments[0], builder.add(place, b))
            line = vectors.gather(here, apart, rows)
            there = builder.add(start, builder.mul(b, spacing))
            vectors.store(line, vectors.pointer(target, arguments[5], there))
            return [builder.fadd(total, line)]

        totals = vectors.pointer(sums, arguments[8], first_sum)
        (total,) = loop(builder, WORD(0), count, [vectors.load(totals)], body)
        vectors.store(total, totals)
        return context.get_dummy_value()

    side = (_INDEX, _INDEX, _INDEX, _INDEX)
    return types.void(source, *side, target, _INDEX, _INDEX, sums, _INDEX), codegen


def _putting(samples):
    """`put_lines` for so many b, a power of two, which are all there are, in rows for all lanes."""

    @intrinsic
    def put(typingctx, source, place, target, start, spacing, sums, first_sum):
        def codegen(context, builder, signature, arguments):
            vectors = _Lines(context, builder, source)
            array, place, _, start, spacing, _, first_sum = arguments
            lines = [
                vectors.load(vectors.pointer(source, array, builder.add(place, WORD(first))))
                for first in range(0, samples * vectors.lanes, vectors.lanes)
            ]
            totals = vectors.pointer(sums, arguments[5], first_sum)
            total = vectors.load(totals)
            for b, line in enumerate(unzipped(builder, lines)):
                there = builder.add(start, builder.mul(WORD(b), spacing))
                vectors.store(line, vectors.pointer(target, arguments[2], there))
                total = builder.fadd(total, line)
            vectors.store(total, totals)
            return context.get_dummy_value()

        return types.void(source, _INDEX, target, _INDEX, _INDEX, sums, _INDEX), codegen

    return put


put_two, put_four, put_eight = _putting(2), _putting(4), _putting(8)


@intrinsic
def put_square(typingctx, source, place, apart, rows, target, start, spacing, sums, first_sum):
    """`put_lines` for as many b as a vector has lanes; in lanes from `rows` on the last row is repeated."""

    def codegen(context, builder, signature, arguments):
        vectors = _Lines(context, builder, source)
        place, apart, rows, _, start, spacing, _, first_sum = arguments[1:]
        lines = vectors.transpose(vectors.lines(source, arguments[0], place, apart, rows))
        for b, line in enumerate(lines):
            there = builder.add(start, builder.mul(WORD(b), spacing))
            vectors.store(line, vectors.pointer(target, arguments[4], there))
        totals = vectors.pointer(sums, arguments[7], first_sum)
        vectors.store(builder.fadd(vectors.load(totals), vectors.sum(lines)), totals)
        return context.get_dummy_value()

    return types.void(source, _INDEX, _INDEX, _INDEX, target, _INDEX, _INDEX, sums, _INDEX), codegen


@intrinsic
def take_square(typingctx, source, place, spacing, columns, rows, target, start, apart):
    """target[start + r apart + k] = source[place + k spacing + r] for k < columns and r < rows, at most a
    vector's lanes both."""

    def codegen(context, builder, signature, arguments):
        vectors = _Lines(context, builder, source)
        place, spacing, columns, rows, _, start, apart = arguments[1:]
        lines = vectors.lines(source, arguments[0], place, spacing, columns, rows)
        for r, line in enumerate(vectors.transpose(lines)):
            with builder.if_then(builder.icmp_unsigned("<", WORD(r), rows)):
                there = builder.add(start, builder.mul(WORD(r), apart))
                vectors.store(line, vectors.pointer(target, arguments[5], there), columns)
        return context.get_dummy_value()

    return types.void(source, _INDEX, _INDEX, _INDEX, _INDEX, target, _INDEX, _INDEX), codegen


@intrinsic
def _copy_square(typingctx, source, place, spacing, target, start, apart):
    """target[start + r apart + k] = source[place + k spacing + r] for as many k and r as a vector has
    lanes."""

    def codegen(context, builder, signature, arguments):
        vectors = _Lines(context, builder, source)
        place, spacing, _, start, apart = arguments[1:]
        places = [builder.add(place, builder.mul(spacing, WORD(k))) for k in range(vectors.lanes)]
        lines = [vectors.load(vectors.pointer(source, arguments[0], at)) for at in places]
        for r, line in enumerate(vectors.transpose(lines)):
            there = builder.add(start, builder.mul(WORD(r), apart))
            vectors.store(line, vectors.pointer(target, arguments[3], there))
        return context.get_dummy_value()

    return types.void(source, _INDEX, _INDEX, target, _INDEX, _INDEX), codegen


@compiled()
def copy_transposed(source, place, spacing, rows, columns, target, start, apart):
    """target[start + k apart + r] = source[place + r spacing + k] for r < rows and k < columns."""
    never_inlined()
    L = np.uint64(VECTOR_BYTES // source.itemsize)
    R, K, S, A = np.uint64(rows), np.uint64(columns), np.uint64(spacing), np.uint64(apart)
    if R < L or K < L:
        if R < K:
            scatter(source, place, spacing, rows, columns, target, start, apart)
        else:
            gather(source, place, spacing, columns, rows, target, start, apart)
        return
    # The last squares overlap those before. The side whose rows lie farther apart is gone through row by row.
    if S < A:
        for line in range(np.uint64(0), K, L + L):
            for row in range(np.uint64(0), R, L):
                for column in range(line, min(line + L + L, K), L):
                    r, k = min(row, R - L), min(column, K - L)
                    _copy_square(source, place + r * S + k, S, target, start + k * A + r, A)
        return
    for line in range(np.uint64(0), R, L + L):
        for column in range(np.uint64(0), K, L):
            for row in range(line, min(line + L + L, R), L):
                r, k = min(row, R - L), min(column, K - L)
                _copy_square(source, place + r * S + k, S, target, start + k * A + r, A)
