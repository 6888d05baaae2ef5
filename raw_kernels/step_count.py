"""Counts an optimizer's steps; a step that is blocked does not count."""

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.system.compiled import compiled


@compiled()
def step_count(blocked, steps):
    if not blocked[0]:
        steps[0] += 1


KERNEL = kernel(step_count, lambda s: one_thread_per(1, block=32))
