"""Compiled loops of the schedule search: shortest paths over segments.

A segment [i, j), 1 <= i < j <= n, is element (i, j) of a matrix (n + 1, n + 1); `classes` says which
segments are equal in size, -1 which are not to be computed, `mm` the seconds of the product of classes
(left, right), `mv` those of a class times a vector. Row 0 of `splits` belongs to the vectors.
"""

import numpy as np
from numba import prange

from bppsa_cupy.system.compiled import compiled

#: What a sum of seconds may lie above a deadline by rounding, relative.
ROUNDING = 1e-12


@compiled()
def find_pairs(classes, pairs):
    """pairs (C, C, 3), zeros before: begin, split and end of one product for each pair of classes."""
    n = classes.shape[0] - 1
    for i in range(1, n):
        for j in range(i + 2, n + 1):
            if classes[i, j] < 0:
                continue
            for k in range(i + 1, j):
                left, right = classes[i, k], classes[k, j]
                if left >= 0 and right >= 0 and pairs[left, right, 0] == 0:
                    pairs[left, right, 0] = i
                    pairs[left, right, 1] = k
                    pairs[left, right, 2] = j


@compiled(parallel=True)
def shortest_matrices(classes, mm, ready, work, product, splits):
    """f(i, j) and the work of the tree of least work, for every matrix segment.

    ready   out, (n + 1, n + 1): f(i, j) = min over k of max(f(i, k), f(k, j)) + mm, 0 for an element,
            infinity where the segment cannot be computed
    work    out, of the same shape: w(i, j) = min over k of w(i, k) + w(k, j) + mm
    product out, of the same shape: the least mm of any k, 0 for an element
    splits  out: the k of f(i, j); of several the one with the least work
    """
    n = classes.shape[0] - 1
    ready[:] = np.inf
    work[:] = np.inf
    product[:] = np.inf
    for i in range(1, n):
        if classes[i, i + 1] >= 0:
            ready[i, i + 1] = work[i, i + 1] = product[i, i + 1] = 0.0
    for length in range(2, n):
        for i in prange(1, n + 1 - length):
            j = i + length
            if classes[i, j] < 0:
                continue
            least, lightest, cheapest, chosen, chosen_work = np.inf, np.inf, np.inf, 0, np.inf
            for k in range(i + 1, j):
                first = max(ready[i, k], ready[k, j])
                if first == np.inf:
                    continue
                seconds = mm[classes[i, k], classes[k, j]]
                own = work[i, k] + work[k, j] + seconds
                lightest, cheapest = min(lightest, own), min(cheapest, seconds)
                if first + seconds < least or (first + seconds == least and own < chosen_work):
                    least, chosen, chosen_work = first + seconds, k, own
            ready[i, j], work[i, j], product[i, j] = least, lightest, cheapest
            splits[i, j] = chosen


@compiled()
def shortest_vectors(classes, mv, ready, work, splits):
    """g(j) = min over k of max(g(k), f(k, j)) + mv into row 0 of `ready`, and its k into that of `splits`."""
    n = classes.shape[0] - 1
    ready[0, 1] = 0.0
    for j in range(2, n + 1):
        least, chosen, lightest = np.inf, 0, np.inf
        for k in range(j - 1, 0, -1):
            if ready[k, j] == np.inf:
                continue
            seconds = mv[classes[k, j]]
            end = max(ready[0, k], ready[k, j]) + seconds
            if end < least or (end == least and work[k, j] + seconds < lightest):
                least, chosen, lightest = end, k, work[k, j] + seconds
        ready[0, j], splits[0, j] = least, chosen


@compiled()
def _settle(classes, mm, mv, ready, work, splits, due, i, j, chosen):
    """Choose the split of one segment, and pass its deadline on to its operands."""
    last = due[i, j] * (1 + ROUNDING)
    best, least, least_end, best_seconds = 0, np.inf, np.inf, 0.0
    for k in range(j - 1, i, -1):
        if ready[k, j] == np.inf or ready[i, k] == np.inf:
            continue
        seconds = mv[classes[k, j]] if i == 0 else mm[classes[i, k], classes[k, j]]
        end = max(ready[i, k], ready[k, j]) + seconds
        if end > last:
            continue
        added = seconds
        if due[k, j] == np.inf:
            added += work[k, j]
        if i > 0 and due[i, k] == np.inf:
            added += work[i, k]
        if added < least or (added == least and end < least_end):
            best, least, least_end, best_seconds = k, added, end, seconds
    if best == 0:
        best = splits[i, j]
        best_seconds = mv[classes[best, j]] if i == 0 else mm[classes[i, best], classes[best, j]]
    chosen[i, j] = best
    start = due[i, j] - best_seconds
    due[i, best] = min(due[i, best], start)
    due[best, j] = min(due[best, j], start)


@compiled()
def relax(classes, mm, mv, ready, work, splits, deadline, chosen):
    """Splits of little work whose vectors are all there by `deadline`, given enough workers.

    chosen  out, (n + 1, n + 1): the split of every segment that is needed, 0 for the others

    From v(n) down to v(2), and then from the longest matrix to the shortest, each segment takes of the
    splits that are in time for its earliest reader the one that adds the least work: its own product,
    and the lightest trees of operands nobody has asked for yet.
    """
    n = classes.shape[0] - 1
    due = np.full((n + 1, n + 1), np.inf)
    due[0, 2:] = deadline
    chosen[:] = 0
    for j in range(n, 1, -1):
        _settle(classes, mm, mv, ready, work, splits, due, 0, j, chosen)
    for length in range(n - 1, 1, -1):
        for i in range(1, n + 1 - length):
            if due[i, i + length] < np.inf:
                _settle(classes, mm, mv, ready, work, splits, due, i, i + length, chosen)
