"""ReLU: the gradient by the input."""

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled


@compiled()
def _span(start, end, output, gradient, input_gradient):
    for i in range(start, end):
        value = gradient[i]
        input_gradient[i] = 0 if output[i] <= 0 else value


_in_spans = spans_of(_span)


@compiled()
def relu_vjp(output, gradient, input_gradient, size):
    _in_spans(size, size, (output, gradient, input_gradient))


KERNEL = kernel(relu_vjp, lambda s: one_thread_per(s["size"]))
