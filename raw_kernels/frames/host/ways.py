"""The ways a walk goes, as addresses of its compiled steps: each is compiled when a walk first goes by it."""

from functools import cache

import numpy as np
from numba import float32, float64, int64, void

from bppsa_cupy.raw_kernels.twins.simd.addresses import address_of

REALS = {np.dtype(np.float32): float32, np.dtype(np.float64): float64}


class Ways:
    """Compiled steps of a cell in one direction over time, called by their addresses: (full, partial, rows),
    as `teams` numbers them.

    before, behind  the numbers of arrays of reals that a step takes on either side of the int64 array of the
                    walk's ends
    integers        and of integers, its last arguments
    """

    def __init__(self, steps, before, behind, integers):
        self.steps = steps
        self._counts = before, behind, integers
        self.address = cache(self._address_of)

    def _address_of(self, way, dtype):
        """Where the steps by a way are."""
        before, behind, integers = self._counts
        array = REALS[dtype][::1]
        signature = void(*[array] * before, int64[::1], *[array] * behind, *[int64] * integers)
        return address_of(self.steps[way], signature.args)
