"""Sets a flag where any value is NaN or infinite."""

from bppsa_cupy.raw_kernels.kernel import (
    Kernel,
    array_in,
    array_inout,
    one_thread_per,
    scalar,
)
from bppsa_cupy.raw_kernels.twins.twin import twin


@twin()
def finite_check(values, flag, count):
    bad = 0
    for item in range(count):
        bad |= 0 if values[item] - values[item] == 0 else 1
    if bad:
        flag[0] = 1


KERNEL = Kernel(
    name="finite_check",
    parameters=(
        array_in("values", "real", "count"),
        array_inout("flag", "int32", "1"),
        scalar("count"),
    ),
    launch=lambda s: one_thread_per(s["count"]),
    twin=finite_check,
)
