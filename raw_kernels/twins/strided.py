"""Copies between one sample's values, which lie `batch` elements apart, and values side by side."""

import numpy as np

from bppsa_cupy.system.compiled import compiled


@compiled()
def gather(source, place, spacing, count, target, first):
    """target[first + i] = source[place + i spacing] for i < count."""
    start, end, step, into = np.uint64(place), np.uint64(count), np.uint64(spacing), np.uint64(first)
    if spacing == 1:
        for i in range(end):
            target[into + i] = source[start + i]
    else:
        for i in range(end):
            target[into + i] = source[start + i * step]


@compiled()
def scatter(source, first, count, target, place, spacing):
    """target[place + i spacing] = source[first + i] for i < count."""
    start, end, step, into = np.uint64(first), np.uint64(count), np.uint64(spacing), np.uint64(place)
    if spacing == 1:
        for i in range(end):
            target[into + i] = source[start + i]
    else:
        for i in range(end):
            target[into + i * step] = source[start + i]
