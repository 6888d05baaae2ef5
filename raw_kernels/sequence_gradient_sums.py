"""Gradients by the weights of one direction of a recurrent layer, from parts of them."""

from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, LaunchShape, kernel
from bppsa_cupy.system.compiled import compiled


@compiled()
def sequence_gradient_sums(
    partial, sources, weight_ih, weight_hh, bias_ih, bias_hh, parts, rows, columns, gates, recurrent, hidden,
    inputs, biased,
):  # fmt: skip
    total = partial.reshape(parts, rows, columns).sum(0)
    for row in range(gates * hidden):
        for column in range(inputs):
            weight_ih[row * inputs + column] = total[row, hidden + column]
        if biased:
            bias_ih[row] = total[row, hidden + inputs]
    for row in range(recurrent * hidden):
        source = sources[row // hidden] * hidden + row % hidden
        for column in range(hidden):
            weight_hh[row * hidden + column] = total[source, column]
        if biased:
            bias_hh[row] = total[source, hidden + inputs]


def _launch(s):
    H = s["hidden"]
    items = s["gates"] * H * (s["inputs"] + 1) + s["recurrent"] * H * (H + 1)
    return LaunchShape((min(-(-items // 32), MAXIMAL_GRID), 1, 1), (256, 1, 1))


KERNEL = kernel(sequence_gradient_sums, _launch)
