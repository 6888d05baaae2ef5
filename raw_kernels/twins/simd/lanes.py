"""16 samples as one SIMD value, for twins whose innermost loop is over the batch.

Numba leaves vectorisation to LLVM, which gives up on loops of 16 steps over arrays that might overlap.
So a twin says it: `load` gives a `Lanes` value, whose operators act on all lanes at once, and `store`
writes one. Numbers mix with them as NumPy's scalars do with arrays, and what is written with the functions
here works on numbers alone too; `multiply_add`, `select`, `magnitude` and `number` take NumPy's arrays also
where no twin calls them. LLVM cuts a value into the registers the processor has.
"""

import operator

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, overload, register_model

from bppsa_cupy.raw_kernels.twins.simd.vectors import WORD, Vectors, call_named, data_of

#: Samples that one pass over time takes.
LANES = 16

_SCALARS = {types.float32: np.float32, types.float64: np.float64}


class Lanes(types.Type):
    """LANES numbers of one float dtype."""

    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


class Mask(types.Type):
    """LANES truth values."""

    def __init__(self):
        super().__init__(name="Mask")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, type):
        element = ir.FloatType() if type.dtype == types.float32 else ir.DoubleType()
        super().__init__(manager, type, ir.VectorType(element, LANES))


@register_model(Mask)
class _MaskModel(models.PrimitiveModel):
    def __init__(self, manager, type):
        super().__init__(manager, type, ir.VectorType(ir.IntType(1), LANES))


def has_lanes(*values):
    """Whether one of these Numba types is Lanes."""
    return any(isinstance(value, Lanes) for value in values)


# ---- LLVM ----


def splat(builder, value):
    """The LLVM vector whose lanes are all `value`."""
    return Vectors(builder, value.type, LANES).all(value)


def lanes_at(context, builder, array_type, array, index, lanes=LANES):
    """Vectors of an array's dtype, and a pointer to the one that starts at array[index]."""
    vectors = Vectors(builder, context.get_value_type(array_type.dtype), lanes)
    return vectors, vectors.at(data_of(context, builder, array_type, array), index)


def lanewise(emit, arity, result=None):
    """An intrinsic of `arity` lanes, masks or numbers, one of them lanes: `emit` (builder, *vectors)."""

    def compile(*operands):
        lanes = next(operand for operand in operands if isinstance(operand, Lanes))

        def codegen(context, builder, signature, arguments):
            vectors = [
                value
                if isinstance(type, (Lanes, Mask))
                else splat(builder, context.cast(builder, value, type, lanes.dtype))
                for type, value in zip(signature.args, arguments, strict=True)
            ]
            return emit(builder, *vectors)

        return (result or lanes)(*operands), codegen

    if arity == 1:
        return intrinsic(lambda typingctx, x: compile(x))
    if arity == 2:
        return intrinsic(lambda typingctx, x, y: compile(x, y))
    return intrinsic(lambda typingctx, x, y, z: compile(x, y, z))


# ---- loads and stores ----


@intrinsic
def load(typingctx, array, index):
    """The lanes array[index : index + LANES]."""

    def codegen(context, builder, signature, arguments):
        vectors, pointer = lanes_at(context, builder, array, *arguments)
        return vectors.load(pointer)

    return Lanes(array.dtype)(array, types.uint64), codegen


@intrinsic
def store(typingctx, array, index, value):
    """Set array[index : index + LANES] to lanes."""

    def codegen(context, builder, signature, arguments):
        vectors, pointer = lanes_at(context, builder, array, *arguments[:2])
        vectors.store(arguments[2], pointer)
        return context.get_dummy_value()

    return types.void(array, types.uint64, value), codegen


@intrinsic
def _with_lane(typingctx, value, lane, number):
    def codegen(context, builder, signature, arguments):
        vector, lane, number = arguments
        return builder.insert_element(vector, number, builder.trunc(lane, ir.IntType(32)))

    return value(value, types.uint64, value.dtype), codegen


@intrinsic
def _lane(typingctx, value, lane):
    def codegen(context, builder, signature, arguments):
        return builder.extract_element(arguments[0], builder.trunc(arguments[1], ir.IntType(32)))

    return value.dtype(value, types.uint64), codegen


@intrinsic
def sum_lanes(typingctx, value):
    """The sum of all lanes, by halves."""

    def codegen(context, builder, signature, arguments):
        numbers = [builder.extract_element(arguments[0], ir.IntType(32)(lane)) for lane in range(LANES)]
        while len(numbers) > 1:
            half = len(numbers) // 2
            numbers = [builder.fadd(*pair) for pair in zip(numbers[:half], numbers[half:], strict=True)]
        return numbers[0]

    return value.dtype(value), codegen


@intrinsic
def spread(typingctx, number):
    """Lanes that all hold a number."""
    return Lanes(number)(number), lambda context, builder, signature, arguments: splat(builder, arguments[0])


@intrinsic
def never_inlined(typingctx):
    """Keep the twin that calls this a function of its own: compiled once, however often it is called."""

    def codegen(context, builder, signature, arguments):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def lanes_before(typingctx, number, ends):
    """The lanes that are still going on: number < ends[lane], `ends` being LANES integers of int64."""

    def codegen(context, builder, signature, arguments):
        vectors, pointer = lanes_at(context, builder, ends, arguments[1], WORD(0))
        return builder.icmp_signed("<", vectors.all(arguments[0]), vectors.load(pointer))

    return Mask()(types.int64, ends), codegen


# ---- arithmetic ----


def _operator(function, emit, result=None):
    apply = lanewise(emit, 2, result)

    @overload(function)
    def meaning(x, y):
        return (lambda x, y: apply(x, y)) if has_lanes(x, y) else None


_operator(operator.add, lambda builder, x, y: builder.fadd(x, y))
_operator(operator.sub, lambda builder, x, y: builder.fsub(x, y))
_operator(operator.mul, lambda builder, x, y: builder.fmul(x, y))
_operator(operator.truediv, lambda builder, x, y: builder.fdiv(x, y))
_operator(operator.lt, lambda builder, x, y: builder.fcmp_ordered("<", x, y), Mask())
_operator(operator.gt, lambda builder, x, y: builder.fcmp_ordered(">", x, y), Mask())
_operator(operator.le, lambda builder, x, y: builder.fcmp_ordered("<=", x, y), Mask())
_operator(operator.eq, lambda builder, x, y: builder.fcmp_ordered("==", x, y), Mask())


@overload(operator.neg)
def _negative(x):
    return (lambda x: _negated(x)) if has_lanes(x) else None


_negated = lanewise(lambda builder, x: builder.fneg(x), 1)
_fused = lanewise(lambda builder, x, y, z: call_named(builder, "llvm.fmuladd", x, y, z), 3)
_selected = lanewise(lambda builder, mask, x, y: builder.select(mask, x, y), 3)
_magnitude = lanewise(lambda builder, x: call_named(builder, "llvm.fabs", x), 1)


def multiply_add(x, y, z):
    """x y + z, in one rounding where the processor can do so."""
    return x * y + z


def select(mask, x, y):
    """x where `mask` holds, else y."""
    return np.where(mask, x, y)


def number(like, value):
    """`value`, a constant, in the type of `like`: lanes that all hold it, or a number of that dtype."""
    return np.asarray(like).dtype.type(value)


def magnitude(x):
    """|x|"""
    return np.abs(x)


@overload(multiply_add)
def _multiply_add(x, y, z):
    return (lambda x, y, z: _fused(x, y, z)) if has_lanes(x, y, z) else (lambda x, y, z: x * y + z)


@overload(select)
def _select(mask, x, y):
    return (
        (lambda mask, x, y: _selected(mask, x, y))
        if has_lanes(x, y)
        else (lambda mask, x, y: x if mask else y)
    )


@overload(number)
def _number(like, value):
    if isinstance(like, Lanes):
        single = _SCALARS[like.dtype]
        return lambda like, value: spread(single(value))
    single = _SCALARS.get(like)
    return (lambda like, value: single(value)) if single else None


@overload(magnitude)
def _overload_magnitude(x):
    return (lambda x: _magnitude(x)) if has_lanes(x) else (lambda x: abs(x))


def on_each_lane(function):
    """An implementation that calls a scalar twin lane by lane, for what has no SIMD code."""

    def each(x):
        result = x
        for lane in range(np.uint64(LANES)):
            result = _with_lane(result, lane, function(_lane(x, lane)))
        return result

    return each
