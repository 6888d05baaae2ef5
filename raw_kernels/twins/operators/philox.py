"""Philox4x32-10 (Salmon et al. 2011) for twins: four random 32-bit numbers from a counter and a key."""

import numpy as np

from bppsa_cupy.system.compiled import compiled

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


@compiled()
def philox(group, first, second, key):
    """The four numbers, as uint64, of the counter (group: 64 bits, first, second) and the 64-bit key."""
    c0, c1 = np.uint64(group) & LOW, np.uint64(group) >> HALF
    c2, c3 = np.uint64(first) & LOW, np.uint64(second) & LOW
    k0, k1 = np.uint64(key) & LOW, np.uint64(key) >> HALF
    for _ in range(10):
        even, odd = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (odd >> HALF) ^ c1 ^ k0, odd & LOW, (even >> HALF) ^ c3 ^ k1, even & LOW
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & LOW, (k1 + np.uint64(0xBB67AE85)) & LOW
    return c0, c1, c2, c3
