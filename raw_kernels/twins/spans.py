"""Cutting host loops into parts that are worth a thread, and transposing ones into tiles."""

import numpy as np

from bppsa_cupy.system.compiled import compiled

#: Elements a part has at least: the work of a few microseconds, about what starting a thread costs.
LEAST = 65536

#: Samples a tile of a transposition has: their rows are read side by side.
LANES = 16


@compiled()
def part_count(size):
    """Into how many parts a loop over `size` elements is cut; 1 means that no thread is started."""
    return max(1, min(64, size // LEAST))


@compiled()
def part_start(part, parts, size):
    """Where part `part` of `parts` begins; the end of the last one is part_start(parts, parts, size)."""
    return np.uint64(np.int64(part) * size // parts)


@compiled()
def tile_width(batch):
    """Features a tile of a transposition to (features, batch) has: its rows stay in the first cache,
    also where a power-of-two batch puts them all in a few of its sets."""
    return np.uint64(max(16, min(1024, 4096 // batch)))
