"""Runs of parameters that belong to one group."""

import numpy as np

from bppsa_cupy.system.compiled import compiled


@compiled()
def end_of_group(group, groups, unit, start, end):
    """Where the parameters from `start` on end that are of its group, at most `end`; `group` has one number,
    below `groups`, for each `unit` parameters."""
    if groups == 1:
        return end
    own = group[start // unit]
    place = start // unit + np.uint64(1)
    while place * unit < end and group[place] == own:
        place += np.uint64(1)
    return min(place * unit, end)
