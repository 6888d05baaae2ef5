"""Counts an optimizer's steps; a step that is blocked does not count."""

from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_inout, one_thread_per
from bppsa_cupy.raw_kernels.twins.twin import twin


@twin()
def step_count(blocked, steps):
    if not blocked[0]:
        steps[0] += 1


KERNEL = Kernel(
    name="step_count",
    parameters=(array_in("blocked", "int32", "1"), array_inout("steps", "int64", "1")),
    launch=lambda s: one_thread_per(1, block=32),
    twin=step_count,
)
