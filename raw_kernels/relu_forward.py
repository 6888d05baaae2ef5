"""ReLU: the output."""

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
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


KERNEL = kernel(relu_forward, lambda s: one_thread_per(s["size"]))
