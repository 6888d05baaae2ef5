"""The ways a walk goes, as addresses of its compiled steps: each is compiled when a walk first goes by it."""

from functools import cache

import numpy as np
from numba import float32, float64, int64, void

from bppsa_cupy.raw_kernels.twins.addresses import address_of

REALS = {np.dtype(np.float32): float32, np.dtype(np.float64): float64}


class Ways:
    """A cell's steps in one direction over time, (full, partial, rows), as `teams` numbers the ways; each of
    so many arguments: arrays of reals, then the int64 array of the walk's ends, arrays of reals, integers."""

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
