"""ReLU: the output."""

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.spans import spans_of
from bppsa_cupy.system.compiled import compiled


@compiled()
def _span(start, end, input, output):
    for i in range(start, end):
        value = input[i]
        output[i] = 0 if value <= 0 else value


_in_spans = spans_of(_span)


@compiled()
def relu_forward(input, output, size):
    _in_spans(size, size, (input, output))


KERNEL = kernel(relu_forward, "size")
