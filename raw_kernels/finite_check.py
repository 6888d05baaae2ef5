"""Sets a flag where any value is NaN or infinite."""

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.system.compiled import compiled


@compiled()
def finite_check(values, flag, count):
    bad = 0
    for item in range(count):
        bad |= 0 if values[item] - values[item] == 0 else 1
    if bad:
        flag[0] = 1


KERNEL = kernel(finite_check, "count")
