"""The order in which a chain of factors is multiplied, chosen before any product is made.

The multiply-adds of a product L·R are the entries in column j of L times those in row j of R, summed over j.
Bounds on these entries follow from the factors. Where a bound counts many entries more than once, an estimate
replaces it (Cohen, "Structure prediction and sparse matrix multiplication", J. Comb. Optim. 2, 1998).
Time grows with the entries of all factors times their number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse

from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan.loops import least_keys
from bppsa_cupy.plan.product import row_sums

#: Random keys per column; the relative error of a row's estimate is one over their root. Sums over rows are
#: closer.
SAMPLES = 8
#: An estimate replaces a bound if it is below this share of the bound: closer ones differ by chance.
SHARE = 0.8

Run = tuple[int, int]


def choose_cuts(factors: Sequence[Pattern], axes: Sequence[int]) -> dict[Run, int]:
    """For each run (begin, end) of two factors or more, where its last product cuts it.

    axes  sizes of the blocks that the patterns are of, along the axes of the chain
    """
    n = len(factors)
    if n == 2:
        return {(0, 2): 1}
    transposed = [Pattern.from_scipy(scipy.sparse.csr_array(f.to_scipy().T)) for f in reversed(factors)]
    rows, columns = _row_lengths(factors), _row_lengths(transposed)
    work = {(begin, begin + 1): 0.0 for begin in range(n)}
    cuts: dict[Run, int] = {}
    for length in range(2, n + 1):
        for begin in range(n + 1 - length):
            end = begin + length
            costs = {
                cut: work[begin, cut]
                + work[cut, end]
                + float(columns[n - cut, n - begin] @ rows[cut, end]) * axes[begin] * axes[cut] * axes[end]
                for cut in range(begin + 1, end)
            }
            cuts[begin, end] = min(costs, key=costs.__getitem__)
            work[begin, end] = costs[cuts[begin, end]]
    return cuts


def _row_lengths(factors: Sequence[Pattern]) -> dict[Run, np.ndarray]:
    """About how many entries each row of a run's product has, (rows,) float64.

    Only runs that another factor precedes: no other ones are right operands.
    """
    lengths: dict[Run, np.ndarray] = {}
    for end in range(2, len(factors) + 1):
        columns = factors[end - 1].shape[1]
        keys = np.random.default_rng(0).exponential(size=(columns, SAMPLES)).astype(np.float32)
        bound = np.ones(columns, np.int64)
        for begin in range(end - 1, 0, -1):
            factor = factors[begin]
            bound = np.minimum(row_sums(factor, bound[factor.indices]), columns)
            least = np.empty((factor.shape[0], SAMPLES), np.float32)
            least_keys(factor.indptr, factor.indices, keys, least)
            keys = least
            # The least of m exponential variables has the rate m.
            estimate = (SAMPLES - 1) / keys.sum(1)
            likely = begin < end - 1 and estimate.sum() < SHARE * bound.sum()
            lengths[begin, end] = np.minimum(bound, estimate if likely else columns).astype(np.float64)
    return lengths
