"""The states that come to chunks of a linear scan."""

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.system.compiled import compiled


@compiled()
def linear_scan_carry(product, end, first, start, chunks, plane, paired, descending):
    for k in range(chunks):
        place = (chunks - 1 - k if descending else k) * plane
        former = place + plane if descending else place - plane
        for i in range(plane):
            if k == 0:
                start[place + i] = first[i]
            elif not paired:
                start[place + i] = product[former + i] * start[former + i] + end[former + i]
            elif i % 2 == 0:
                a, b = product[former + i], product[former + i + 1]
                x, y = start[former + i], start[former + i + 1]
                start[place + i] = a * x - b * y + end[former + i]
                start[place + i + 1] = a * y + b * x + end[former + i + 1]


KERNEL = kernel(linear_scan_carry, lambda s: one_thread_per(s["plane"] // (2 if s["paired"] else 1)))
