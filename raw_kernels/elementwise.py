"""Elementwise operators: activations with their slopes, dropout, and the diagonals of their Jacobians."""

import math

import numpy as np
from numba import types
from numba.extending import overload

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.simd.activations import sigmoid, tanh
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of, tile_width
from bppsa_cupy.system.compiled import compiled, part


def named_as(definition):
    """Decorate a function that a frame made: it gets the name and the module of the frame's definition."""

    def rename(function):
        function.__name__, function.__module__ = definition.__name__, definition.__module__
        return function

    return rename


# ---- activations, and their slopes at every element ----


def activation(definition):
    """Make the pair NAME_forward from the definition of one element.

    The twin writes output and slope = definition(x, *arguments) for each of the `size` elements x of input,
    in parallel where they are worth it.

    definition  gives f(x) and f'(x), both of x's type
    """
    element = part()(definition)

    @part()
    def span(start, end, input, output, slope, *arguments):
        for i in range(start, end):
            output[i], slope[i] = element(input[i], *arguments)

    run_spans = spans_of(span)

    @kernel(lambda s: one_thread_per(s["size"]))
    @compiled()
    @named_as(definition)
    def forward(input, output, slope, size, *arguments):
        run_spans(size, size, (input, output, slope, *arguments))

    return forward


def like(x, value):
    """The number `value` in the type of the float `x`; for use inside twins."""
    raise NotImplementedError


@overload(like)
def _like(x, value):
    if x == types.float32:
        return lambda x, value: np.float32(value)
    return lambda x, value: np.float64(value)


@activation
def tanh_forward(x):
    y, one = tanh(x), like(x, 1)
    return y, (one - y) * (one + y)


@activation
def sigmoid_forward(x):
    s = sigmoid(x)
    return s, s * sigmoid(-x)


@activation
def silu_forward(x):
    s = sigmoid(x)
    return x * s, s + x * s * sigmoid(-x)


@activation
def gelu_forward(x, tanh_form):
    if tanh_form:
        c = max(min(x, like(x, 40)), like(x, -40))
        square = c * c
        twice = like(x, 1.5957691216057308) * c * (like(x, 1) + like(x, 0.044715) * square)
        share = sigmoid(twice)
        rate = like(x, 1.5957691216057308) * (like(x, 1) + like(x, 0.134145) * square)
        density = rate * share * sigmoid(-twice)
    else:
        share = like(x, 0.5) * math.erfc(like(x, -0.70710678118654752) * x)
        density = like(x, 0.39894228040143268) * math.exp(like(x, -0.5) * x * x)
    return x * share, share + x * density


@activation
def elu_forward(x, alpha):
    if x > 0:
        return x, like(x, 1)
    return alpha * math.expm1(x), alpha * math.exp(x)


@activation
def leaky_relu_forward(x, negative_slope):
    slope = like(x, 1) if x > 0 else negative_slope
    return slope * x, slope


@activation
def softplus_forward(x, beta, threshold):
    z = beta * x
    if z > threshold:
        return x, like(x, 1)
    rest = math.log1p(math.exp(-abs(z)))
    return (rest if z < 0 else z + rest) / beta, sigmoid(z)


# ---- ReLU, whose slope is read from its output ----


@part()
def _relu(start, end, input, output):
    for i in range(start, end):
        value = input[i]
        output[i] = 0 if value <= 0 else value


@part()
def _relu_back(start, end, output, gradient, input_gradient):
    for i in range(start, end):
        value = gradient[i]
        input_gradient[i] = 0 if output[i] <= 0 else value


_relu_spans, _relu_back_spans = spans_of(_relu), spans_of(_relu_back)


@kernel(lambda s: one_thread_per(-(-s["size"] // 4)))
@compiled()
def relu_forward(input, output, size):
    _relu_spans(size, size, (input, output))


@kernel(lambda s: one_thread_per(-(-s["size"] // 4)))
@compiled()
def relu_vjp(output, gradient, input_gradient, size):
    _relu_back_spans(size, size, (output, gradient, input_gradient))


# ---- dropout ----

LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


@compiled()
def philox(group, first, second, key):
    """Philox4x32-10 (Salmon et al. 2011): four random 32-bit numbers, as uint64, of the counter (group: 64
    bits, first, second) and the 64-bit key."""
    c0, c1 = np.uint64(group) & LOW, np.uint64(group) >> HALF
    c2, c3 = np.uint64(first) & LOW, np.uint64(second) & LOW
    k0, k1 = np.uint64(key) & LOW, np.uint64(key) >> HALF
    for _ in range(10):
        even, odd = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (odd >> HALF) ^ c1 ^ k0, odd & LOW, (even >> HALF) ^ c3 ^ k1, even & LOW
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & LOW, (k1 + np.uint64(0xBB67AE85)) & LOW
    return c0, c1, c2, c3


@spans_of
@part()
def _dropout(start, end, input, output, mask, first, key, layer, draw, threshold, scale):
    """The groups of four elements from `start` to `end`."""
    size, zero, before = np.uint64(input.size), input.dtype.type(0), np.uint64(first % 4)
    for group in range(start, end):
        numbers = philox(np.uint64(first // 4) + group, layer, draw, key)
        for k in range(np.uint64(4)):
            item = np.uint64(4) * group + k - before  # wraps round before the first element
            if item < size:
                keep = numbers[k] >= threshold
                mask[item] = keep
                output[item] = scale * input[item] if keep else zero


@kernel(lambda s: one_thread_per((s["first"] % 4 + s["size"] + 3) // 4))
@compiled()
def dropout_forward(input, output, mask, draw, size, first, key, layer, threshold, scale):
    groups, limit = (first % 4 + size + 3) // 4, np.uint64(threshold)
    _dropout(size, groups, (input, output, mask, first, key, layer, np.uint64(draw[0]), limit, scale))


# ---- values of transposed Jacobians that are whole diagonals ----


def _diagonal_filling(slope):
    """fill(source, values, features, batch, scale): values (features, batch) = slope(s, scale), s being the
    elements of source (batch, features)."""

    @part()
    def fill_tiles(start, end, source, values, features, batch, scale):
        width, samples, stride = tile_width(batch), np.uint64(batch), np.uint64(features)
        for left in range(start, end, width):
            right = min(left + width, end)
            for top in range(np.uint64(0), samples, np.uint64(LANES)):
                for sample in range(top, min(top + np.uint64(LANES), samples)):
                    for feature in range(left, right):
                        values[feature * samples + sample] = slope(source[sample * stride + feature], scale)

    run_tiles = spans_of(fill_tiles)

    @part()
    def fill(source, values, features, batch, scale):
        run_tiles(features * batch, features, (source, values, features, batch, scale))

    return fill


def diagonal(definition):
    """Make the pair NAME_fill from the slope of one element, definition(s, _) of what the layer saved."""
    fill = _diagonal_filling(part(inline="always")(definition))

    @kernel(lambda s: one_thread_per(s["features"] * s["batch"]))
    @compiled()
    @named_as(definition)
    def fill_diagonal(source, values, features, batch):
        fill(source, values, features, batch, 0)

    return fill_diagonal


@diagonal
def relu_fill(y, _):
    return 0 if y <= 0 else 1


@diagonal
def slope_fill(slope, _):
    return slope


@part(inline="always")
def _dropout_slope(mask, scale):
    return scale if mask else type(scale)(0)


_dropout_diagonal = _diagonal_filling(_dropout_slope)


@kernel(lambda s: one_thread_per(s["features"] * s["batch"]))
@compiled()
def dropout_fill(mask, values, features, batch, scale):
    _dropout_diagonal(mask, values, features, batch, scale)
