"""Activations with their slopes: a frame that takes the definition of one."""

import numpy as np
from numba import types
from numba.extending import overload

from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import part


def activation_of(definition):
    """apply(size, input, output, slope, *arguments): output and slope are definition(x, *arguments) of each
    of the `size` elements x of input, in parallel where they are worth it. Compiled into the twin that calls
    it, and cached with that.

    definition  compiled; gives f(x) and f'(x), both of x's type
    """

    @part()
    def span(start, end, input, output, slope, *arguments):
        for i in range(start, end):
            output[i], slope[i] = definition(input[i], *arguments)

    run = spans_of(span)

    @part()
    def apply(size, input, output, slope, *arguments):
        run(size, size, (input, output, slope, *arguments))

    return apply


def like(x, value):
    """The number `value` in the type of the float `x`; for use inside twins."""
    raise NotImplementedError


@overload(like)
def _like(x, value):
    if x == types.float32:
        return lambda x, value: np.float32(value)
    return lambda x, value: np.float64(value)
