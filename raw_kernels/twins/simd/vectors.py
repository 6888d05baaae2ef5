"""Vectors in memory and registers, loops, and sums of products that stay in registers: LLVM's language.

Twins write their innermost loops in it: Numba would keep the sums of a tile in memory.
"""

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features


def has(feature):
    """Whether it has a feature, by LLVM's name, as "avx512f": of those in NUMBA_CPU_FEATURES, where that is
    set."""
    features = numba.config.CPU_FEATURES
    return f"+{feature}" in (get_host_cpu_features() if features is None else features).split(",")


#: Whether a register holds 16 lanes of float32, and there are 32 of them; else 8, and 16.
WIDE = has("avx512f")

#: Bytes of a vector register.
VECTOR_BYTES = 64 if WIDE else 32

WORD = ir.IntType(64)


def data_of(context, builder, array_type, array):
    """A pointer to the first element of an array of this Numba type."""
    return context.make_array(array_type)(context, builder, array).data


def count_of(kind, count):
    """None where `count`, of this Numba type, is None: all lanes."""
    return None if isinstance(kind, types.NoneType) else count


def shuffled(builder, left, right, places):
    """The vector of these elements of two, one after the other."""
    kind = ir.VectorType(ir.IntType(32), len(places))
    return builder.shuffle_vector(left, right, ir.Constant(kind, list(places)))


def call_named(builder, name, *values):
    """LLVM's intrinsic of that name, on vectors of one type."""
    kind = values[0].type
    function_type = ir.FunctionType(kind, [kind] * len(values))
    function_name = f"{name}.v{kind.count}{kind.element.intrinsic_name}"
    return builder.call(cgutils.get_or_insert_function(builder.module, function_type, function_name), values)


class Vectors:
    """Vectors of `lanes` numbers of one LLVM type, by default as many as a register holds."""

    def __init__(self, builder, element, lanes=None):
        self.builder = builder
        self.size = 4 if isinstance(element, ir.FloatType) else 8
        self.lanes = lanes or VECTOR_BYTES // self.size
        self.type = ir.VectorType(element, self.lanes)

    def zeros(self):
        """The vector of zeros."""
        return ir.Constant(self.type, [0.0] * self.lanes)

    def all(self, number):
        """The vector whose lanes are all `number`, of any type."""
        single = ir.Constant(ir.VectorType(number.type, self.lanes), ir.Undefined)
        single = self.builder.insert_element(single, number, ir.IntType(32)(0))
        return shuffled(self.builder, single, single, [0] * self.lanes)

    def first(self, count):
        """The mask of the first `count` lanes."""
        lanes = ir.VectorType(ir.IntType(32), self.lanes)
        counts = self.all(self.builder.trunc(count, ir.IntType(32)))
        return self.builder.icmp_unsigned("<", ir.Constant(lanes, list(range(self.lanes))), counts)

    def at(self, start, index):
        """A pointer to the vector that begins `index` elements behind the one at `start`."""
        return self.builder.bitcast(self.builder.gep(start, [index]), self.type.as_pointer())

    def load(self, pointer, count=None):
        """A vector, or its first `count` lanes and zeros after them."""
        if count is None:
            return self.builder.load(pointer, align=self.size)
        align = ir.IntType(32)(self.size)
        return self.masked("load", "p0", self.type, pointer, align, self.first(count), self.zeros())

    def store(self, value, pointer, count=None):
        """Set a vector, or its first `count` lanes."""
        if count is None:
            self.builder.store(value, pointer, align=self.size)
        else:
            align = ir.IntType(32)(self.size)
            self.masked("store", "p0", ir.VoidType(), value, pointer, align, self.first(count))

    def masked(self, name, places, result, *values):
        """LLVM's masked load, store, gather of that name."""
        kind = ir.FunctionType(result, [value.type for value in values])
        function = f"llvm.masked.{name}.v{self.lanes}{self.type.element.intrinsic_name}.{places}"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, function), values)

    def add_products(self, first, end, sums, left, right):
        """sums[i, j] + Σ_k left(k)[i] right(k)[j] over first ≤ k < end, each added up in the order of k.

        sums         vectors, those of one i side by side
        left, right  k -> vectors, loaded or spread
        """

        def body(k, *totals):
            across, results = list(right(k)), []
            for factor in left(k):
                for vector in across:
                    total = totals[len(results)]
                    results.append(call_named(self.builder, "llvm.fmuladd", factor, vector, total))
            return results

        return loop(self.builder, first, end, sums, body)


def loop(builder, first, end, carried, body):
    """LLVM values after rounds of `body` (k, *values) -> values for first ≤ k < end, from `carried`."""
    before = builder.block
    rounds, done = builder.append_basic_block("rounds"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_unsigned(">", end, first), rounds, done)
    builder.position_at_end(rounds)
    index = builder.phi(WORD)
    values = [builder.phi(value.type) for value in carried]
    results = body(index, *values)
    following = builder.add(index, WORD(1))
    index.add_incoming(first, before)
    index.add_incoming(following, builder.block)
    for phi, start, last in zip(values, carried, results, strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(last, builder.block)
    after = builder.block
    builder.cbranch(builder.icmp_unsigned("<", following, end), rounds, done)
    builder.position_at_end(done)
    finals = []
    for start, last in zip(carried, results, strict=True):
        final = builder.phi(start.type)
        final.add_incoming(start, before)
        final.add_incoming(last, after)
        finals.append(final)
    return finals
